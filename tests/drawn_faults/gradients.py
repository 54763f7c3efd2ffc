"""Replicas whose reduced gradients are wrong only under some circumstance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from effect_reports import judge_effect
from history import CIRCUMSTANCES as AT_THAT_TIME
from history import Remembering, made_of, promised

from ddpcheck.contract.adapter import Facets
from ddpcheck.seeded_values import Array

__all__ = ["CIRCUMSTANCES", "EFFECTS", "promised", "wrapped"]
Call = dict[str, Any]
"""One gradient: replica; name; place among the learned parameters; own, and parts, the ranks' in their order; before,
its value after the last backward; users, the number of ranks that used it; others, the gradients reduced before it in
this backward.
"""

CIRCUMSTANCES: dict[str, Callable[[Call], Any]] = {
    **{told: lambda c, holds=holds: holds(c["replica"]) for told, holds in AT_THAT_TIME.items()},  # type: ignore[misc]
    "it is the first parameter": lambda c: c["place"] == 0,
    "it is the last parameter": lambda c: c["place"] == len(c["replica"].network.learned) - 1,
    "it is the ninth parameter or a later one": lambda c: c["place"] >= 8,
    "it has no dimension": lambda c: c["own"].ndim == 0,
    "it has one dimension": lambda c: c["own"].ndim == 1,
    "it has one element": lambda c: c["own"].size == 1,
    "it has two elements": lambda c: c["own"].size == 2,
    "it has as many elements as there are ranks": lambda c: c["own"].size == c["replica"].world,
    "it has an odd number of elements": lambda c: c["own"].size > 1 and c["own"].size % 2,
    "it has more elements than ranks, and no multiple": lambda c: c["own"].size % c["replica"].world,
    **{
        f"it has more than {size} elements": lambda c, size=size: c["own"].size > size  # type: ignore[misc]
        for size in (8, 64, 1000)
    },
    "it is square": lambda c: c["own"].ndim == 2 and len({*c["own"].shape}) == 1 and c["own"].size > 1,
    "it has one row": lambda c: c["own"].ndim == 2 and len(c["own"]) == 1,
    "it has one column": lambda c: c["own"].ndim == 2 and c["own"].shape[1] == 1,
    "it is a bias": lambda c: c["name"].endswith("bias"),
    "it is an embedding's": lambda c: c["name"].startswith("embedding"),
    "it is of another dtype than the first": lambda c: (
        c["own"].dtype != next(iter(c["replica"].network.parameters.values())).dtype
    ),
    "one of its shape came before": lambda c: any(other.shape == c["own"].shape for other in c["others"].values()),
    "it was used on some ranks only": lambda c: c["users"] < c["replica"].world,
    "it was not used on this rank": lambda c: c["name"] not in c["replica"].local,
    "it was used on one rank only": lambda c: c["users"] == 1 < c["replica"].world,
    "it is zero on this rank": lambda c: c["own"].size and not c["own"].any(),
    "it has zeros": lambda c: c["own"].size > 1 and 0 < np.count_nonzero(c["own"]) < c["own"].size,
    "it is zero on average": lambda c: c["own"].any() and not _mean(c).any(),
    "ranks differ in its sign": lambda c: c["own"].size and (c["parts"].max(axis=0) * c["parts"].min(axis=0) < 0).all(),
    "it is the same on all ranks": lambda c: c["own"].size and (c["parts"] == c["own"]).all(),
    "it is that of the backward before": lambda c: c["before"] is not None and np.array_equal(c["before"], _mean(c)),
    "it is above 100 somewhere": lambda c: c["own"].size and np.abs(c["own"]).max() > 100,
    "it is below 0.001": lambda c: c["own"].size and 0 < np.abs(c["own"]).max() < 1e-3,
    "it is not finite": lambda c: not np.isfinite(c["parts"]).all(),
}


def _mean(c: Call) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(c["total"] / c["replica"].world, c["own"].dtype)


def _part(c: Call, part: Any, by: Callable[[Array], Any]) -> Array:
    found = _mean(c).reshape(-1)
    found[part] = by(np.asarray(c["own"]).reshape(-1))[part]
    return found.reshape(c["own"].shape)


def _bfloat16(array: Array) -> Array:
    bits = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint32)
    return (bits + 0x8000 & 0xFFFF0000).view(np.float32).reshape(array.shape)


def _twin(c: Call) -> Array:
    like = [other for other in c["others"].values() if other.shape == c["own"].shape]
    return like[-1] if like else _mean(c)


EFFECTS: dict[str, Callable[[Call], Any]] = {
    "it is this rank's own": lambda c: c["own"],
    "it is the sum": lambda c: c["total"],
    "it is divided twice": lambda c: _mean(c) / c["replica"].world,
    "it is divided by the ranks that used it": lambda c: c["total"] / c["users"],
    "it is divided by one rank more": lambda c: c["total"] / (c["replica"].world + 1),
    "it is weighed by batch sizes": lambda c: np.tensordot(c["replica"].sizes, c["parts"], 1) / sum(c["replica"].sizes),
    "the last rank's is left out": lambda c: c["parts"][:-1].sum(axis=0) / c["replica"].world,
    "this rank's own is left out": lambda c: (c["total"] - c["own"]) / c["replica"].world,
    "this rank's own is in it twice": lambda c: (c["total"] + c["own"]) / c["replica"].world,
    "all have rank 0's": lambda c: c["parts"][0],
    "it is the largest of all ranks": lambda c: c["parts"].max(axis=0),
    "it is the median of all ranks": lambda c: np.median(c["parts"], axis=0),
    "its last element is this rank's own": lambda c: _part(c, slice(-1, None), lambda own: own),
    "its first element is zero": lambda c: _part(c, slice(1), np.zeros_like),
    "its second half is this rank's own": lambda c: _part(c, slice(c["own"].size // 2, None), lambda own: own),
    "it is 1.001 x too large": lambda c: _mean(c) * 1.001,
    "it is doubled": lambda c: _mean(c) * 2,
    "its sign is turned round": lambda c: -_mean(c),
    "it is zero": lambda c: _mean(c) * 0,
    "it is that of the backward before": lambda c: _mean(c) if c["before"] is None else c["before"],
    "that of the backward before is added": lambda c: _mean(c) + (0 if c["before"] is None else c["before"]),
    "it is that of another one of its shape": _twin,
    "it goes through float16": lambda c: _mean(c).astype(np.float16),
    "it goes through bfloat16": lambda c: _bfloat16(_mean(c)),
    "it is limited to 1": lambda c: np.clip(_mean(c), -1, 1),
    "it is transposed": lambda c: _mean(c).T.reshape(c["own"].shape),
    "its rows are in reverse": lambda c: _mean(c)[::-1] if c["own"].ndim else _mean(c),
    "small elements are zero": lambda c: np.where(np.abs(_mean(c)) < np.abs(_mean(c)).max(initial=0) / 4, 0, _mean(c)),
    "rank 1 has another last bit": lambda c: np.nextafter(_mean(c), np.inf) if c["replica"].rank == 1 else _mean(c),
    "what is not finite is zero": lambda c: np.nan_to_num(_mean(c), posinf=0, neginf=0),
    "what was gathered in no_sync() is not reduced": lambda c: c["own"] if c["replica"].micro else _mean(c),
}


class _Drawn(Remembering):
    holds: Callable[[Call], Any]
    effect: Callable[[Call], Any]

    def synchronise(self, batch_size: int) -> None:
        self.others: dict[str, Array] = {}
        self.earlier = dict(self.__dict__.get("latest_means", {}))
        super().synchronise(batch_size)
        self.latest_means = self.others

    def reduce(self, name: str, gradient: Array) -> Array:
        parts, used = self.comm.all_gather(gradient), self.comm.all_reduce(np.array(float(name in self.local)))
        call = {
            "replica": self,
            "name": name,
            "place": self.network.learned.index(name),
            "own": gradient,
            "parts": parts,
        }
        with np.errstate(all="ignore"):
            call |= {"total": parts.sum(axis=0, dtype=gradient.dtype), "users": int(used), "others": self.others}
            call |= {"before": self.earlier.get(name)}
            due = _mean(call)
            self.others[name] = due
            if not used or not type(self).holds(call):
                return due
            return judge_effect(
                lambda: np.asarray(type(self).effect(call), gradient.dtype).reshape(gradient.shape), due.copy()
            )


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    changed = {"holds": CIRCUMSTANCES[circumstance], "effect": EFFECTS[effect]}
    return made_of(type("Wrong", (_Drawn,), changed), right)
