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
_OWN = {values.NOT_REDUCED.id, gradients.UNUSED_RANKS_LEFT_OUT.id}
"""Causes of a gradient that may be this rank's own."""


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
    same = _alike([seen.get(of.name) for seen in of.got])
    return (gradients.OTHER_RANKS_VALUE(rank=first), *of.told[1:]) if same else ()


def reduced_only_if_all_use(of: WrongArrays) -> tuple[Cause, ...]:
    """The ranks that used the parameter keep their own gradients, and the others have none."""
    if of.what != "gradients" or not any(cause.id in _OWN for cause in of.told):
        return ()
    entry, shown = of.entries[of.name], [seen.get(of.name) for seen in of.got]
    without = tuple(rank for rank in entry.ranks if shown[rank] is None and entry.presence[rank] == "there")
    held = [shown[rank] for rank in entry.ranks if shown[rank] is not None]
    averaged = len(held) > 1 and _alike(held)
    return (gradients.REDUCED_ONLY_IF_ALL_USE(ranks=without), *of.told) if without and not averaged else ()


def equal_on_all_ranks(of: WrongArrays) -> tuple[Cause, ...]:
    """All ranks have made the same update, so none has used its own gradient."""
    others = tuple(cause for cause in of.told if cause.id != updates.UPDATED_BY_OWN.id)
    if of.what != "parameters" or not others or len(others) == len(of.told):
        return ()
    entry = of.entries[of.name]
    shown = [of.got[rank].get(of.name) for rank in entry.ranks]
    return others if entry.alike and len(shown) > 1 and _alike(shown) else ()


def _alike(arrays: Sequence[Any]) -> bool:
    """Whether all of them exist and are equal."""
    return all(array is not None and np.array_equal(array, arrays[0]) for array in arrays)


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
