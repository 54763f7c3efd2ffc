"""Collectives that are wrong only under some circumstance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from effect_reports import judge_effect, report_effect

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Facets
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.faulty.engine import circumstances as at
from ddpcheck_implementations.faulty.engine import collective_effects as effects
from ddpcheck_implementations.faulty.engine import collectives as calls
from ddpcheck_implementations.faulty.engine.circumstances import Circumstance
from ddpcheck_implementations.faulty.engine.collectives import Call, CollectiveEffect

REDUCING = ("all_reduce", "reduce_scatter")


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters, a subset of the reference's."""
    return right.of_facets("collectives").but(in_place=False)


def _when(holds: Any) -> Circumstance:
    return Circumstance("", holds)


CIRCUMSTANCES: dict[str, Circumstance] = {
    "it is every seventh call": at.every(7),
    "it is a later call than the tenth": at.after_calls(10),
    "it comes after one of another kind": calls.another_kind_before,
    "it comes after one of this shape, in another dtype": _when(
        lambda c: c.before and c.before.array.shape == c.array.shape and c.before.array.dtype != c.array.dtype
    ),
    "it comes after an array without elements": _when(lambda c: c.before and c.before.array.size == 0),
    "there is one element": at.elements(1),
    "there are two elements": at.elements(2),
    "there are fewer elements than ranks": _when(lambda c: 0 < c.array.size < c.world),
    "there is one element more than ranks": _when(lambda c: c.array.size == c.world + 1),
    "elements are an odd number above 8": at.larger(8) & at.odd_size,
    "elements are no multiple of the world size": _when(lambda c: c.array.size > c.world and c.array.size % c.world),
    **{f"there are more than {size} elements": at.larger(size) for size in (64, 500, 1000, 4096, 20_000, 65_536)},
    "there is no dimension": at.dimensions(0),
    "there are two dimensions": at.dimensions(2),
    "there are three dimensions or more": at.more_dimensions(2),
    "the first dimension is 1": at.more_dimensions(1) & _when(lambda c: c.array.shape[0] == 1),
    "it lies in Fortran's order": at.fortran_order,
    "it does not lie in one piece": at.strided,
    "strides are negative": at.negative_stride,
    **{f"it is of {dtype}": at.dtype(dtype) for dtype in ("float16", "float64", "int32", "int64")},
    **{f"it is the {op}": calls.op(op) for op in ("mean", "min", "max", "prod")},
    "it is the minimum or maximum of integers": calls.op("min", "max") & ~at.floats,
    "the root is rank 1": calls.root(1),
    "the root is the last rank": calls.root(-1),
    "it is in a group of some": calls.in_group & calls.in_part,
    "it is in a group without rank 0": calls.without_rank_0,
    "it is in a group of all": calls.in_group_of_all,
    "it is in another group than the one before": calls.another_group_before,
    "it is asynchronous": calls.asynchronous,
    "it is asynchronous, and another one is under way": calls.asynchronous & calls.others_pending,
    "it waits, and another one is under way": ~calls.asynchronous & calls.others_pending,
    "it is asynchronous, and in a group": calls.asynchronous & calls.in_group,
    "a NaN is there": at.has_nan,
    "an infinity is there": at.has_infinity,
    "this rank has zeros only": at.all_zero,
    "this rank has one number only": _when(lambda c: c.array.size > 2 and len(np.unique(c.array)) == 1),
    "a number is above 10^30": at.floats & _when(lambda c: (np.abs(c.array.astype(float)) > 1e30).any()),
    "a number is no integer": at.floats & _when(lambda c: (np.isfinite(c.array) & (c.array % 1 != 0)).any()),
}


def _bit(result: Array) -> Array:
    flat = result.reshape(-1)
    middle = flat[flat.size // 2 : flat.size // 2 + 1]
    middle[...] = np.nextafter(middle, np.asarray(np.inf, flat.dtype)) if flat.dtype.kind == "f" else middle ^ 1
    return result


def _halves(result: Array) -> Array:
    return np.roll(result.reshape(-1), result.size // 2).reshape(result.shape)


def _becomes(got: Any) -> CollectiveEffect:
    return CollectiveEffect(got=got)


def _float16(c: Call, r: Array) -> Array:
    return r.astype(np.float16).astype(r.dtype) if r.dtype.kind == "f" else r


EFFECTS: dict[str, tuple[CollectiveEffect, tuple[str, ...]]] = {
    "the last element is this rank's own": (effects.tail_kept_local(1), ("all_reduce",)),
    "the last element is zero": (effects.zero_from(lambda r: max(0, r.size - 1)), ()),
    "all is 1.001 x too large": (_becomes(lambda c, r: (r * 1.001).astype(r.dtype)), ()),
    "one bit is wrong on the last rank": (_becomes(lambda c, r: _bit(r) if c.rank == c.world - 1 else r), ()),
    "it goes through float16": (_becomes(_float16), ()),
    "it goes through float32": (effects.result_through("float32"), ()),
    "halves change places": (_becomes(lambda c, r: _halves(r)), ()),
    "it is transposed": (_becomes(lambda c, r: r.T.reshape(r.shape).copy()), ()),
    "it is flattened": (_becomes(lambda c, r: r.reshape(-1)), ()),
    "it is of float64": (_becomes(lambda c, r: r.astype(np.float64)), ()),
    "it is a list": (_becomes(lambda c, r: r.tolist()), ()),
    "the last rank raises an error": (_becomes(lambda c, r: r if c.rank < c.world - 1 else r[len(r) :][0]), ()),
    "it is this rank's own": (effects.own_value, ("all_reduce", "broadcast")),
    "this rank's own is in it twice": (_becomes(lambda c, r: (r + c.array).astype(r.dtype)), ("all_reduce",)),
    "a NaN is 0": (_becomes(lambda c, r: np.where(r != r, 0, r).astype(r.dtype)), REDUCING),
    "rows are in reverse": (_becomes(lambda c, r: r[::-1].copy()), ("all_gather",)),
    "the argument is set to zero": (_becomes(lambda c, r: (c.array.fill(0), r)[1]), ()),
}
"""The change of a right result, and the collectives that it applies to; none named: all."""


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    chosen, kinds = EFFECTS[effect]
    where = _when(lambda call: call.kind in (kinds or _GIVING)) & CIRCUMSTANCES[circumstance]
    made = replace(chosen, got=lambda call, result: _told(chosen, call, result)).implemented(where)
    return {"collectives": made(right.collectives, right.rank, right.world_size)}


_GIVING = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "recv")


def _told(effect: CollectiveEffect, call: Call, result: Any) -> Any:
    """The effect's result; reports an effect if the result, or the argument, differs from the right one."""
    due, kept = np.array(result), np.array(call.array)
    found = judge_effect(lambda: effect.got(call, due.copy()), due)
    if not np.array_equal(kept, call.array, equal_nan=at.is_float(kept)):
        report_effect()
    return found
