"""Hypotheses about one wrong array of an observation, such as all gradients, from the other arrays and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..causes import Cause, gradients, updates, values
from ..causes import programs as causes
from ..oracle import ExpectedArray
from ..seeded_values import Array

_ONE_FACTOR = {values.WRONG_FACTOR.id, values.WRONG_DIVISOR.id, values.LOSS_SCALE_KEPT.id}
"""Causes that are one factor for all elements."""


@dataclass(frozen=True)
class WrongArrays:
    """Arrays of one observation, of which some are wrong, and one of these that is to be explained.

    what: their kind, such as "gradients". got: by rank, then by name. entries: the expected ones. wrong: the ranks on
    which each wrong array is wrong. name: the one to be explained. told: its causes found so far. bits: whether ranks
    should hold the same bits.
    """

    what: str
    got: Sequence[Mapping[str, Any]]
    entries: Mapping[str, ExpectedArray]
    wrong: Mapping[str, Sequence[int]]
    name: str
    told: tuple[Cause, ...]
    bits: bool


@dataclass(frozen=True)
class MissingGradient:
    """A gradient that should exist. parts: the ranks' contributions, if known."""

    entry: ExpectedArray
    parts: Array | None


def no_gradients_anywhere(of: WrongArrays) -> Cause | None:
    """Several gradients should exist, and none exists on any rank."""
    due = [name for name, entry in of.entries.items() if of.what == "gradients" and "there" in entry.presence]
    absent = len(due) > 1 and all(seen.get(name) is None for seen in of.got for name in due)
    return causes.NO_GRADIENTS_ANYWHERE() if absent else None


def other_ranks_gradient(of: WrongArrays) -> tuple[Cause, ...]:
    """All ranks hold one rank's own gradient: it was sent, and not reduced."""
    if of.what != "gradients" or not values.NOT_REDUCED.explains(of.told) or len(of.got) == 1:
        return ()
    first = min(of.wrong[of.name])
    shown: list[Any] = [seen.get(of.name) for seen in of.got]
    same = all(array is not None and np.array_equal(array, shown[first]) for array in shown)
    return (gradients.OTHER_RANKS_VALUE(rank=first), *of.told[1:]) if same else ()


def others_are_averaged(of: WrongArrays) -> tuple[Cause, ...]:
    """This gradient is a sum over the ranks, and others are means: a missing division is the last cause to think of."""
    if of.what != "gradients" or not values.SUMMED_NOT_AVERAGED.explains(of.told):
        return ()
    right = any(name not in of.wrong and np.any(entry.value.exact) for name, entry in of.entries.items())
    return (*of.told[1:], of.told[0]) if right else ()


def as_alone(of: WrongArrays) -> tuple[Cause, ...]:
    """The other arrays tell nothing."""
    return of.told


def clipped_unasked(of: WrongArrays) -> Cause | None:
    """All gradients are too small by one factor, and their norm is a plausible max_norm."""
    if of.what != "gradients" or not of.told or of.told[0].id not in _ONE_FACTOR:
        return None
    got = of.got[min(of.wrong[of.name])]
    squares = [float(np.square(array, dtype=np.float64).sum()) for array in got.values() if array is not None]
    norm = math.sqrt(sum(squares))
    if not norm or not math.isfinite(norm) or not math.isclose(norm, 10.0 ** round(math.log10(norm)), rel_tol=1e-3):
        return None
    return causes.CLIPPED_UNASKED(norm=norm)


def own_value_in_update(of: WrongArrays) -> Cause | None:
    """Parameters differ between ranks, and nothing else explains them."""
    if of.what != "parameters" or not of.bits or of.told:
        return None
    for name in of.wrong:
        shown = [np.asarray(of.got[rank].get(name)) for rank in of.entries[name].ranks]
        if of.entries[name].alike and not all(np.array_equal(array, shown[0]) for array in shown):
            return causes.OWN_VALUE_IN_UPDATE()
    return None


def update_not_shared(of: WrongArrays) -> Cause | None:
    """Some ranks have the update, and this one has the value before it."""
    right = tuple(rank for rank in of.entries[of.name].ranks if rank not in of.wrong[of.name])
    return causes.UPDATE_NOT_SHARED(ranks=right) if right and updates.NOT_UPDATED.explains(of.told) else None


def construction_value(what: str, entry: ExpectedArray) -> Cause | None:
    """A parameter that nothing has changed yet is not rank 0's initial value."""
    return causes.CONSTRUCTION_VALUE() if what == "parameters" and entry.made_of is None else None


def zeros_for_unused(of: MissingGradient) -> Cause | None:
    """No rank used the parameter, and zeros are promised."""
    return causes.ZEROS_FOR_UNUSED() if of.entry.made_of is None else None


def use_told_by_value(of: MissingGradient) -> Cause | None:
    """The gradient is zero: the implementation may take its parameter for unused."""
    return causes.USE_TOLD_BY_VALUE() if of.parts is not None and not np.any(of.parts.mean(axis=0)) else None


def gradient_dropped(of: MissingGradient) -> Cause:
    users = tuple(rank for rank, part in enumerate(() if of.parts is None else of.parts) if np.any(part))
    return causes.GRADIENT_DROPPED(users=users, world_size=len(of.entry.presence))
