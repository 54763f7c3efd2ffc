"""Hypotheses about reductions, mostly all-reduces: of other values, by another rule, or over other ranks."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ...causes import Cause
from ...causes import collectives as causes
from ...job import ReduceScatter
from ...oracle.collectives import Collective, Reducing, reduced, wants
from ...seeded_values import Array, poison_like
from ..arrays.evidence import WhatIf
from .datatypes import FOLDS, of_another_datatype
from .evidence import LINEAR, WrongResult
from .integers import other_integers, unsigned_as_signed

_SOME = 4
"""For up to this many ranks every pair is tried."""


def reduction_ignored(of: WrongResult) -> WhatIf:
    """A sum in place of an extreme or a product."""
    made = of.collective
    if isinstance(made, Reducing) and made.reduction not in LINEAR:
        yield causes.REDUCTION_IGNORED(), wants(replace(made, reduction="sum"), of.members)[of.rank].value


def other_extreme(of: WrongResult) -> WhatIf:
    """The opposite extreme, or one that includes the initial value of the accumulator. A comparison as signed integers goes
    first: it is the opposite extreme of large unsigned integers only, and a reversed one is wrong for all dtypes.
    """
    if of.all_reduce in ("min", "max"):
        yield from unsigned_as_signed(of, of.all_reduce)
        opposite = "max" if of.all_reduce == "min" else "min"
        yield causes.OPPOSITE_EXTREME(), reduced(of.tensor, opposite, of.members).value
        yield from _started_from(reduced(of.tensor, of.all_reduce, of.members).value, of.all_reduce)


def zeros_left_out_of_product(of: WrongResult) -> WhatIf:
    if of.all_reduce == "prod":
        stack = np.stack(of.parts)
        rest = np.where(stack == 0, np.ones((), stack.dtype), stack).prod(axis=0, dtype=stack.dtype)
        yield causes.ZERO_LEFT_OUT_OF_PRODUCT(), rest


def narrow_sum(of: WrongResult) -> WhatIf:
    """Parts are narrowed to float32: large ones become infinite."""
    if of.tensor.dtype == "float64" and of.all_reduce in LINEAR:
        narrow = np.stack([part.astype(np.float32) for part in of.parts]).sum(axis=0)
        if not np.isfinite(narrow).all():  # otherwise lost_precision explains more
            yield causes.SUM_AS_FLOAT32(), narrow / _divisor(of)


def integers_computed_otherwise(of: WrongResult) -> WhatIf:
    if of.all_reduce not in ("", "mean") and not of.tensor.dtype.startswith("float"):
        yield from other_integers(of, of.all_reduce)


def divided_by_other_number(of: WrongResult) -> WhatIf:
    """A mean divided by the number of elements, or by the world size in place of the group's."""
    if of.all_reduce == "mean":
        yield causes.DIVIDED_BY_SIZE_OF_ARRAY(), of.total / max(1, of.total.size)
        yield causes.DIVIDED_BY_WORLD(), of.total / of.job.world_size


def group_ignored(of: WrongResult) -> WhatIf:
    everybody = tuple(range(of.job.world_size))
    if of.all_reduce and of.members != everybody:
        yield causes.GROUP_IGNORED(), reduced(of.tensor, of.all_reduce, everybody).value


def rank_counted_twice(of: WrongResult) -> WhatIf:
    for twice in of.members if of.all_reduce in LINEAR else ():
        yield causes.RANK_COUNTED_TWICE(rank=twice), (of.total + of.tensor.on(twice)) / _divisor(of)


def means_of_means(of: WrongResult) -> WhatIf:
    """A running mean, or the mean of the means of two halves."""
    if of.all_reduce != "mean" or len(of.members) < 3:
        return
    running = of.parts[0]
    for part in of.parts[1:]:
        running = (running + part) / 2
    yield causes.RUNNING_MEAN(), running
    half = len(of.members) // 2
    first, second = (reduced(of.tensor, "mean", part).value for part in (of.members[:half], of.members[half:]))
    yield causes.MEAN_OF_UNEVEN_MEANS(), (first + second) / 2


def other_datatype(of: WrongResult) -> WhatIf:
    if of.all_reduce:
        yield from of_another_datatype(of.parts, of.all_reduce)


def rank_left_out(of: WrongResult) -> WhatIf:
    for missing in of.members if of.all_reduce else ():
        if rest := tuple(rank for rank in of.members if rank != missing):
            yield causes.RANK_LEFT_OUT(rank=missing), reduced(of.tensor, of.all_reduce, rest).value


def one_received_twice(of: WrongResult) -> WhatIf:
    """One rank's message overwrites another's."""
    for lost, twice in permutations(of.members[:_SOME], 2) if of.all_reduce in LINEAR else ():
        part = (of.total - of.tensor.on(lost) + of.tensor.on(twice)) / _divisor(of)
        yield causes.RECEIVED_OVERWRITES(twice=twice, lost=lost), part


def infinity_or_late_value(of: WrongResult) -> WhatIf:
    """NaN in place of infinity; without such values, the argument was read after the call had returned."""
    made = of.collective
    if of.tensor.values == "nonfinite" and isinstance(made, Reducing) and made.reduction in LINEAR:
        whole = wants(made, of.members)[of.rank].value
        yield causes.INFINITY_BECOMES_NAN(), np.where(np.isinf(whole), np.nan, whole)
    elif of.tensor.dtype.startswith("float"):
        yield causes.READ_AFTER_RETURN(call="the call, or its wait(),"), poison_like(of.tensor.on(of.rank))


def wrong_divisor(of: WrongResult) -> WhatIf:
    """A mean with another divisor close to the number of ranks."""
    size = len(of.members)
    if isinstance(of.collective, Reducing) and of.collective.reduction == "mean":
        for divisor in {*range(2, 2 * size + 1)} - {size}:
            yield causes.WRONG_DIVISOR_OF_SUM(divisor=divisor, world_size=size), _share(of, of.total / divisor)


def two_ranks_added(of: WrongResult) -> WhatIf:
    """The values of two ranks were added under every reduction, which is right for most ranks."""
    made = of.collective
    if not isinstance(made, Reducing) or made.reduction in LINEAR or len(of.members) < 3:
        return
    for pair in combinations(of.members, 2):
        rest = [of.tensor.on(each) for each in of.members if each not in pair]
        stack = np.stack([of.tensor.on(pair[0]) + of.tensor.on(pair[1]), *rest])
        yield causes.ADDED_NOT_REDUCED(ranks=pair), _share(of, FOLDS[made.reduction].reduce(stack, axis=0))


def overflowed(made: Collective, got: Array, want: Array) -> Cause | None:
    """An infinity or a NaN in place of a number, in a sum or mean that fits its dtype."""
    if got.shape != want.shape or not (~np.isfinite(got) & np.isfinite(want)).any():
        return None
    mean = isinstance(made, Reducing) and made.reduction == "mean"
    return causes.OVERFLOWS_BEFORE_DIVISION() if mean else causes.OVERFLOWS_ON_THE_WAY()


def of_tiny_values(parts: Array, divisor: int) -> WhatIf:
    """parts: with the ranks as first axis, in units of the smallest number. divisor: of their sum."""
    if divisor > 1:
        yield causes.TINY_DIVIDED_FIRST(), np.rint(parts / divisor).sum(axis=0)
    yield causes.SUBNORMALS_FLUSHED(), np.zeros_like(parts[0])


def _divisor(of: WrongResult) -> int:
    return len(of.members) if of.all_reduce == "mean" else 1


def _share(of: WrongResult, whole: Array) -> Array:
    """This rank's part of a whole reduction."""
    scattered = isinstance(of.collective, ReduceScatter)
    return np.asarray(np.split(whole, len(of.members))[of.place] if scattered else whole)


def _started_from(extreme: Array, reduction: str) -> WhatIf:
    """An extreme of the ranks' values and of the accumulator's initial value."""
    compare, sign = (np.minimum, "") if reduction == "min" else (np.maximum, "minus ")
    starts: dict[str, Any] = {"0": 0}
    if extreme.dtype.kind == "f":
        limits = np.finfo(extreme.dtype)
        # the two are equal if other numbers are large
        starts = {"0, or the smallest positive number": limits.tiny}
        starts[f"{sign}the largest finite number"] = limits.max if reduction == "min" else limits.min
    elif extreme.dtype == np.int64:
        narrow = np.iinfo(np.int32)
        least = "the largest int32" if reduction == "min" else "the lowest int32"
        starts[least] = narrow.max if reduction == "min" else narrow.min
    for name, start in starts.items():
        yield causes.STARTS_FROM(start=name), np.asarray(compare(extreme, np.asarray(start, extreme.dtype)))
