"""A Job on one rank: every operation has its runner, and replicas are built when needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest

from ddpcheck import Facets, Job, ModelSpec
from ddpcheck.contract.allowed_names import COLLECTIVE_DTYPES
from ddpcheck.execution import Execution
from ddpcheck.execution.memory_layouts import with_layout
from ddpcheck.execution.runners import RUNNERS
from ddpcheck.job import DataSpec, Layout, MeasureSteps, Observe, Operation, Resume, Save, Step, TensorSpec
from ddpcheck.models.spec import Linear
from ddpcheck.numerics import same_bits
from ddpcheck.seeded_values import overwritten

FROZEN = ModelSpec((Linear("fc", 1, 1, frozen=True),))
STEPS = MeasureSteps(((0,),), warmups=0, iterations=1)


class Still:
    """A replica that holds its construction arguments."""

    def __init__(self, initial: dict[str, Any]) -> None:
        self.initial = initial

    def zero_grad(self) -> None: ...

    def backward(self, batch: object) -> float:
        return 0.0

    step = zero_grad

    def state(self) -> dict[str, Any]:
        return dict(self.initial)

    def load_state(self, state: dict[str, Any]) -> None: ...

    def gradients(self) -> dict[str, Any]:
        return {}


def built_by(*operations: Operation) -> list[dict[str, Any]]:
    """The options of each replica that these operations build."""
    seen: list[dict[str, Any]] = []

    def make(model: object, initial: Any, optimizer: object, options: Any) -> Any:
        seen.append(options)
        return Still(initial)

    facets = Facets(rank=0, world_size=1, make_replica=make)
    Execution(facets, Job(1, operations, FROZEN, data=DataSpec(1)), 0, lambda position: None).run()
    return seen


def test_every_operation_has_a_runner() -> None:
    assert {*RUNNERS} == {*Operation.__args__}


def test_equal_options_share_a_replica_and_a_new_one_takes_another_s_place() -> None:
    other = replace(STEPS, options=(("bucket_cap_mb", 1.0),))
    built = built_by(STEPS, STEPS, other, other, Save(), Resume(), STEPS)
    assert built == [{}, {"bucket_cap_mb": 1.0}, {}, {}]
    assert built_by(Save(), other, Resume(), Step()) == [{}, {"bucket_cap_mb": 1.0}, {}]


def test_frozen_model_has_no_gradients() -> None:
    assert built_by(Observe(("gradients",))) == [{}]


@pytest.mark.parametrize("dtype", sorted(COLLECTIVE_DTYPES))
def test_poison_values_fit_the_dtype_and_differ(dtype: str) -> None:
    made = [overwritten((2,), dtype, position) for position in range(40)]
    assert all(each.dtype == dtype for each in made)
    assert all((one != other).all() for one, other in pairwise(made))


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0, 3), (4, 3, 2)])
def test_a_layout_moves_values_and_changes_none(layout: Layout, shape: tuple[int, ...]) -> None:
    array = TensorSpec(shape, layout=layout).on(0)
    made = with_layout(array, layout)
    assert same_bits(made, array)
    assert not np.may_share_memory(made, array)
    if array.size > 1 and (layout not in ("F", "permuted") or array.ndim > 1):
        assert made.flags.c_contiguous == (
            layout in ("C", "offset", "mixed", "varied", "read_only", "shared")
            or (layout == "columns" and array.ndim == 1)
        )
    if layout == "permuted" and array.ndim > 2 and array.size:
        assert not made.flags.f_contiguous
    assert made.flags.writeable == (layout != "read_only")
