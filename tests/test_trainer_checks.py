"""Tests of the checks of training runs: four faults are each caught with the expected cause, and correct runs pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from in_threads import ThreadedSession

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.trainer import TrainingRun, TrainingTask
from ddpcheck.contract.validation import problems_of_adapter
from ddpcheck.job import Job, Train
from ddpcheck.verdict import Finding
from ddpcheck_implementations.data_parallel import numpy_facets
from ddpcheck_properties.training import runs
from ddpcheck_properties.training.drawn_runs import run_job

PROMISED = TYPICAL.of_facets("trainer").but(clipping=True, unused_parameters="synchronised")
CHECKS = (
    runs.check_training_run_uses_every_sample,
    runs.check_training_run_matches_one_process,
    runs.check_training_run_reports_loss_over_all_samples,
)
Change = Callable[[Facets, TrainingTask], TrainingRun]


def session(change: Change | None = None, world_size: int = 2) -> ThreadedSession:
    def wire(collectives: Any, rank: int, size: int) -> Facets:
        facets = numpy_facets(collectives, rank, size)
        return facets if change is None else replace(facets, train=lambda task: change(facets, task))

    return ThreadedSession(wire, world_size, PROMISED, effort=8)


def run(facets: Facets, task: TrainingTask) -> TrainingRun:
    assert facets.train is not None
    return facets.train(task)


def local_loss(facets: Facets, task: TrainingTask) -> TrainingRun:
    found = run(facets, task)
    return replace(found, losses=[loss + 0.25 * facets.rank for loss in found.losses])


def never_shuffles(facets: Facets, task: TrainingTask) -> TrainingRun:
    return run(facets, replace(task, shuffle=False))


def trains_on_its_first_half_only(facets: Facets, task: TrainingTask) -> TrainingRun:
    half = len(task.inputs) // 2
    return run(facets, replace(task, inputs=task.inputs[:half], targets=task.targets[:half]))


def learns_too_fast(facets: Facets, task: TrainingTask) -> TrainingRun:
    rate = task.optimizer.lr * facets.world_size
    return run(facets, replace(task, optimizer=replace(task.optimizer, lr=rate)))


def drifts(facets: Facets, task: TrainingTask) -> TrainingRun:
    found = run(facets, task)
    nudged = {name: np.nextafter(array, facets.rank) for name, array in found.parameters.items()}
    return replace(found, parameters=nudged)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("check", CHECKS)
def test_a_right_run_raises_no_alarm(check: Callable[[Any], None], world_size: int) -> None:
    check(session(world_size=world_size))


@pytest.mark.parametrize(
    ("change", "check", "says"),
    [
        (local_loss, CHECKS[2], "loss of epoch 0 on rank 1"),
        (never_shuffles, CHECKS[0], "[shuffle-ignored]"),
        (trains_on_its_first_half_only, CHECKS[0], "samples that no rank used"),
        (learns_too_fast, CHECKS[1], "after the training run"),
        (drifts, CHECKS[1], "last bits"),
    ],
)
def test_a_wrong_run_is_caught(change: Change, check: Callable[[Any], None], says: str) -> None:
    with pytest.raises(Finding) as caught:
        check(session(change))
    assert says in str(caught.value)


def without_best(facets: Facets, task: TrainingTask) -> TrainingRun:
    return replace(run(facets, task), best=None)


def with_an_epoch_too_few(facets: Facets, task: TrainingTask) -> TrainingRun:
    found = run(facets, task)
    return replace(found, losses=found.losses[1:], indices=found.indices[1:])


@pytest.mark.parametrize(
    ("change", "says"), [(without_best, "no best weights"), (with_an_epoch_too_few, "for 2 epochs")]
)
def test_required_reports_of_a_run_are_checked(change: Change, says: str) -> None:
    job = run_job(2, PROMISED, 8, Train(epochs=2, keep_best=True))
    trace = session(change).run(job)
    assert trace.first_failure is not None
    assert says in trace.first_failure.error


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"micro_batches": 0}, "must be positive"),
        ({"epochs": 2, "stop_after": 3}, "stop_after 3 is not in 1 to 2"),
        ({"resume": True}, "need a folder"),
        ({"slow_disk": True}, "need a folder"),
    ],
)
def test_a_training_run_that_cannot_be_is_refused(plan: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        run_job(2, PROMISED, 8, Train(**plan))


def test_a_run_with_all_features_is_a_file_that_can_be_replayed() -> None:
    plan = Train(
        micro_batches=2, schedule="linear", keep_best=True, folder="a", resume=True, stop_after=1, slow_disk=True
    )
    job = run_job(2, PROMISED, 8, plan)
    assert Job.from_plain(job.to_plain()) == job


def test_unknown_features_are_reported_before_the_start() -> None:
    strange = Adapter(
        "strange", lambda context: None, TYPICAL.of_facets("trainer").but(trainer_features=frozenset({"warp"}))
    )
    assert any("has 'warp'" in problem for problem in problems_of_adapter(strange))
