"""The training loop equals a single process under all plans, and wrong gradients are found with their cause."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from in_threads import ThreadCollectives
from rich.console import Console
from training_in_threads import (
    PLAN,
    PROMISES,
    Wire,
    judged,
    small_digits,
    trained,
)

from ddpcheck.contract.adapter import Facets
from ddpcheck.training.comparison import Comparison
from ddpcheck.training.datasets import DataSet, Samples
from ddpcheck.training.display import Display
from ddpcheck_implementations.data_parallel import numpy_facets


@pytest.fixture(scope="module")
def data() -> DataSet:
    return small_digits()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_training_equals_that_of_a_single_process_and_learns(data: DataSet, world_size: int) -> None:
    plan = dataclasses.replace(PLAN, epochs=4, batch_size=8)
    run = trained(plan, data, world_size)
    found = judged(plan, data, run)
    assert found.verdict == "equal", found.in_words()
    assert "equals the single-process run" in found.in_words()
    assert run.differing == []
    assert run.epochs[-1].loss < run.epochs[0].loss
    assert run.epochs[-1].test_accuracy == found.accuracy > 0.7
    assert run.epochs[-1].samples == -(-301 // world_size) * world_size


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "float32"},
        {"dtype": "float32", "activation": "relu"},
        {"optimizer": "adam", "lr": 0.01, "accumulation": 2, "clip": 0.1},
        {"accumulation": 3, "batch_size": 8, "clip": 0.5},
        {"scale_lr": True, "warmup_epochs": 1},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_every_way_to_train_equals_that_of_a_single_process(data: DataSet, settings: dict[str, Any]) -> None:
    plan = dataclasses.replace(PLAN, **settings)
    kind = plan.dtype
    own = dataclasses.replace(
        data,
        train=Samples(data.train.inputs.astype(kind), data.train.labels),
        test=Samples(data.test.inputs.astype(kind), data.test.labels),
    )
    found = judged(plan, own, trained(plan, own, 2))
    assert found.verdict == "equal", found.in_words()


def test_accumulation_equals_the_larger_batch(data: DataSet) -> None:
    larger = dataclasses.replace(PLAN, batch_size=32, clip=0.5)
    whole = DataSet("digits", Samples(data.train.inputs[:300], data.train.labels[:300]), data.test)
    accumulated = dataclasses.replace(larger, batch_size=8, accumulation=4)
    left, right = (trained(plan, whole, 3) for plan in (larger, accumulated))  # 100 each: the last step has 4 of 1
    for name, array in left.parameters.items():
        np.testing.assert_allclose(array, right.parameters[name], rtol=0, atol=1e-13)
    assert left.epochs[0].loss == pytest.approx(right.epochs[0].loss, rel=1e-12)


def test_an_engine_that_sums_and_says_so_trains_like_one_that_averages(data: DataSet) -> None:
    promises = PROMISES.but(gradient="sum")
    found = judged(PLAN, data, trained(PLAN, data, 2, wire=summing, promises=promises))
    assert found.verdict == "equal", found.in_words()


class Summing(ThreadCollectives):
    """A mean is computed as a sum."""

    def all_reduce(self, array: Any, op: str = "sum", *, group: Any = None) -> Any:
        return super().all_reduce(array, op) * self.table.size


def summing(collectives: Any, rank: int, world_size: int) -> Facets:
    return numpy_facets(Summing(collectives.table, rank), rank, world_size)


class Deaf(ThreadCollectives):
    """Gradients are not reduced."""

    def all_reduce(self, array: Any, op: str = "sum", *, group: Any = None) -> Any:
        return array * self.table.size if op == "sum" else array.copy()


def deaf(collectives: Any, rank: int, world_size: int) -> Facets:
    return numpy_facets(Deaf(collectives.table, rank), rank, world_size)


@pytest.mark.parametrize(
    ("wire", "cause", "differing"), [(summing, "summed over the ranks", []), (deaf, "not reduced", [1])]
)
def test_the_comparison_finds_wrong_gradients_and_names_the_cause(
    data: DataSet, wire: Wire, cause: str, differing: list[int]
) -> None:
    run = trained(PLAN, data, 2, wire=wire)
    found = judged(PLAN, data, run)
    assert found.verdict == "different"
    assert "DIFFERS from the single-process run" in found.in_words()
    assert cause in found.in_words()
    assert run.differing == differing


def test_a_run_that_became_nan_differs(data: DataSet) -> None:
    run = trained(PLAN, data)
    run.parameters["fc1.bias"] = np.full(16, np.nan)
    assert judged(PLAN, data, run).verdict == "different"


def test_a_run_in_which_rounding_decides_is_called_unknown() -> None:
    found = Comparison(0.5, "fc1.weight", 0.4, 0.0, 1.0, 0.9, 0.8, "float32")
    assert found.verdict == "unknown"
    assert "CANNOT TELL" in found.in_words()


def test_a_terminal_without_control_codes_gets_lines_only() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, _environ={"TERM": "dumb"})
    shown = Display(1, console)
    with shown.epoch(0, 3) as step:
        step()
    with shown.busy("comparing"):
        shown.say("epoch 1/1")
    assert output.getvalue() == "epoch 1/1\n"
