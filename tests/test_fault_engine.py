"""The fault engine: circumstances combine, effects act only under them, and table rows become adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddpcheck.contract import CallForm
from ddpcheck.contract.adapter import Adapter
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.faulty.engine import circumstances as at
from ddpcheck_implementations.faulty.engine import collective_effects as effects
from ddpcheck_implementations.faulty.engine import collectives as calls
from ddpcheck_implementations.faulty.engine.circumstances import Circumstance
from ddpcheck_implementations.faulty.engine.collectives import Call, CollectiveEffect
from ddpcheck_implementations.faulty.engine.fault import Fault, table
from ddpcheck_implementations.faulty.registry import REGISTERED


class Alone:
    """The collectives of one rank of three; the other ranks have the same arrays."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Any = None) -> Array:
        size = 3 if group is None else len(group)
        return {"sum": array * size, "mean": array * 1, "max": array * 1}[op]

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Any = None) -> Any:
        return calls.Later(lambda: self.all_reduce(array, op, group=group))

    def all_gather(self, array: Array, *, group: Any = None) -> Array:
        return np.stack([array] * 3)

    def broadcast(self, array: Array, root: int = 0, *, group: Any = None) -> Array:
        return array + root


def made(where: Circumstance, effect: CollectiveEffect, rank: int = 0) -> Any:
    return effect.implemented(where)(Alone(), rank, 3)


ONES = np.ones(5, np.float32)


def call(array: Array = ONES, **given: Any) -> Call:
    return Call(None, 0, 3, "all_reduce", array, **given)


def test_circumstances_combine_with_their_names() -> None:
    both = calls.op("max") & at.larger(4)
    assert both(call(op="max"))
    assert not both(call(op="sum"))
    assert not both(call(np.ones(4), op="max"))
    assert (calls.op("sum") | at.larger(4))(call(op="max"))
    assert not (~at.larger(4))(call())
    assert str(both & ~at.dtype("int64")) == "max and more than 4 elements and not int64"


@pytest.mark.parametrize(
    ("circumstance", "array"),
    [
        (at.strided, np.ones((4, 4))[:, ::2]),
        (at.fortran_order, np.ones((4, 4), order="F")),
        (at.negative_stride, np.ones(4)[::-1]),
        (at.odd_size, np.ones(3)),
        (at.fewer_elements_than_ranks, np.ones(2)),
        (at.all_zero, np.zeros(2)),
        (at.has_nan, np.array([1, np.nan])),
    ],
    ids=str,
)
def test_circumstances_of_arrays(circumstance: Circumstance, array: Array) -> None:
    assert circumstance(call(array))
    assert not circumstance(call(np.ones((2, 2))))


def test_an_effect_takes_place_where_its_circumstance_holds_and_nowhere_else() -> None:
    wrong = made(calls.all_reduce & calls.op("sum"), effects.own_value)
    assert (wrong.all_reduce(ONES) == 1).all()
    assert (wrong.all_reduce(ONES, "max") == 1).all()
    assert (wrong.all_reduce_async(ONES).wait() == 3).all()
    assert (wrong.broadcast(ONES, 2) == 3).all()


def test_an_asynchronous_effect_is_seen_when_it_is_waited_for() -> None:
    wrong = made(calls.asynchronous & calls.others_pending, effects.zeros)
    first, second = wrong.all_reduce_async(ONES), wrong.all_reduce_async(ONES)
    assert (first.wait() == 3).all()
    assert (second.wait() == 0).all()
    assert (wrong.all_reduce_async(ONES).wait() == 3).all()


def test_in_place_call_is_an_all_reduce_unless_named() -> None:
    array = ONES.copy()
    made(calls.all_reduce, effects.zeros).all_reduce_in_place(array)
    assert (array == 0).all()
    array = ONES.copy()
    made(calls.in_place & calls.op("max"), effects.zeros).all_reduce_in_place(array)
    assert (array == 3).all()


def test_calls_are_counted() -> None:
    wrong = made(at.every(3), effects.zeros)
    assert [float(wrong.all_reduce(ONES)[0]) for _ in range(6)] == [3, 3, 0, 3, 3, 0]
    later = made(at.after_calls(2) & calls.another_kind_before, effects.zeros)
    found = [later.all_reduce(ONES), later.broadcast(ONES), later.all_reduce(ONES), later.all_reduce(ONES)]
    assert [float(each[0]) for each in found] == [3, 1, 0, 3]


def test_effects_on_dtypes_tails_and_reductions() -> None:
    fine = np.full(3, 1 + 2.0**-40)
    assert (made(at.dtype("float64"), effects.through("float32")).all_reduce(fine) == 3).all()
    assert made(at.always, effects.tail_kept_local(2)).all_reduce(ONES).tolist() == [3, 3, 3, 1, 1]
    assert made(at.always, effects.summed).all_reduce(ONES, "mean").tolist() == [3] * 5
    in_pair = made(at.always, effects.divided_by_world_size).all_reduce(ONES, "mean", group=(0, 1))
    assert np.allclose(in_pair, 2 / 3)


def test_a_row_becomes_an_adapter_of_its_module() -> None:
    module: dict[str, Any] = {"__name__": "a.faulty.table"}
    known = len(REGISTERED)
    try:
        table(
            module,
            Fault(
                "large-sums-are-zero",
                "Sums of more than nine elements are zero.",
                where=calls.op("sum") & at.larger(9),
                effect=effects.zeros,
                caught_by="check_all_reduce_sums_exactly",
                cause="never-written",
                world_size=3,
                in_place=True,
            ),
        )
        adapter, found = module["LargeSumsAreZero"], REGISTERED[-1]
    finally:
        del REGISTERED[known:]
    assert isinstance(adapter, Adapter)
    assert adapter.capabilities.has(CallForm.IN_PLACE)
    assert adapter.description == "Sums of more than nine elements are zero."
    assert (found.name, found.family, found.world_size, found.seen_in) == ("large-sums-are-zero", "table", 3, ())
    assert found.caught_by == ("check_all_reduce_sums_exactly",)
