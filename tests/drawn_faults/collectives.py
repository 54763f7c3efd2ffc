"""Collectives that are wrong in some circumstance only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from told import say, tell

from ddpcheck.adapter import Facets
from ddpcheck.values import Array

Call = dict[str, Any]
"""One call: kind; array; op, root and group, None where it has none; under_way, whether it is asynchronous; others, how many more
are under way; number, from 1 on; rank and world; and the same of the call before, as before.
"""
Group = Sequence[int] | None
REDUCING = ("all_reduce", "reduce_scatter")


def _floats(c: Call) -> bool:
    return bool(c["array"].dtype.kind == "f")


PROMISES: dict[str, Any] = {"facets": frozenset({"collectives"}), "in_place": False}

CIRCUMSTANCES: dict[str, Callable[[Call], Any]] = {
    "it is every seventh call": lambda c: c["number"] % 7 == 0,
    "it is a later call than the tenth": lambda c: c["number"] > 10,
    "it comes after one of another kind": lambda c: c["before"] and c["before"]["kind"] != c["kind"],
    "it comes after one of this shape, in another dtype": lambda c: (
        c["before"]
        and c["before"]["array"].shape == c["array"].shape
        and c["before"]["array"].dtype != c["array"].dtype
    ),
    "it comes after an array without elements": lambda c: c["before"] and c["before"]["array"].size == 0,
    "there is one element": lambda c: c["array"].size == 1,
    "there are two elements": lambda c: c["array"].size == 2,
    "there are fewer elements than ranks": lambda c: 0 < c["array"].size < c["world"],
    "there is one element more than ranks": lambda c: c["array"].size == c["world"] + 1,
    "elements are an odd number above 8": lambda c: c["array"].size > 8 and c["array"].size % 2,
    "elements are no multiple of the world size": lambda c: (
        c["array"].size > c["world"] and c["array"].size % c["world"]
    ),
    **{
        f"there are more than {size} elements": lambda c, size=size: c["array"].size > size  # type: ignore[misc]
        for size in (64, 500, 1000, 4096, 20_000, 65_536)
    },
    "there is no dimension": lambda c: c["array"].ndim == 0,
    "there are two dimensions": lambda c: c["array"].ndim == 2,
    "there are three dimensions or more": lambda c: c["array"].ndim > 2,
    "the first dimension is 1": lambda c: c["array"].ndim > 1 and c["array"].shape[0] == 1,
    "it lies in Fortran's order": lambda c: c["array"].flags.f_contiguous and not c["array"].flags.c_contiguous,
    "it does not lie in one piece": lambda c: not (c["array"].flags.c_contiguous or c["array"].flags.f_contiguous),
    "strides are negative": lambda c: min(c["array"].strides, default=0) < 0,
    **{
        f"it is of {dtype}": lambda c, dtype=dtype: c["array"].dtype == dtype  # type: ignore[misc]
        for dtype in ("float16", "float64", "int32", "int64")
    },
    **{
        f"it is the {op}": lambda c, op=op: c["op"] == op  # type: ignore[misc]
        for op in ("mean", "min", "max", "prod")
    },
    "it is the minimum or maximum of integers": lambda c: c["op"] in ("min", "max") and not _floats(c),
    "the root is rank 1": lambda c: c["root"] == 1,
    "the root is the last rank": lambda c: c["root"] == c["world"] - 1,
    "it is in a group of some": lambda c: c["group"] and 1 < len(c["group"]) < c["world"],
    "it is in a group without rank 0": lambda c: c["group"] and len(c["group"]) > 1 and 0 not in c["group"],
    "it is in a group of all": lambda c: c["group"] and len(c["group"]) == c["world"],
    "it is in another group than the one before": lambda c: c["before"] and c["before"]["group"] != c["group"],
    "it is asynchronous": lambda c: c["under_way"],
    "it is asynchronous, and another one is under way": lambda c: c["under_way"] and c["others"],
    "it waits, and another one is under way": lambda c: not c["under_way"] and c["others"],
    "it is asynchronous, and in a group": lambda c: c["under_way"] and c["group"],
    "a NaN is there": lambda c: _floats(c) and np.isnan(c["array"]).any(),
    "an infinity is there": lambda c: _floats(c) and np.isinf(c["array"]).any(),
    "this rank has zeros only": lambda c: c["array"].size and not c["array"].any(),
    "this rank has one number only": lambda c: c["array"].size > 2 and len(np.unique(c["array"])) == 1,
    "a number is above 10^30": lambda c: _floats(c) and (np.abs(c["array"].astype(float)) > 1e30).any(),
    "a number is no integer": lambda c: _floats(c) and (np.isfinite(c["array"]) & (c["array"] % 1 != 0)).any(),
}


def _bit(result: Array) -> Array:
    flat = result.reshape(-1)
    middle = flat[flat.size // 2 : flat.size // 2 + 1]
    middle[...] = np.nextafter(middle, np.asarray(np.inf, flat.dtype)) if flat.dtype.kind == "f" else middle ^ 1
    return result


def _end(c: Call, result: Array, by: Any) -> Array:
    result.reshape(-1)[-1:] = by
    return result


def _halves(result: Array) -> Array:
    return np.roll(result.reshape(-1), result.size // 2).reshape(result.shape)


EFFECTS: dict[str, tuple[Callable[[Call, Array], Any], tuple[str, ...]]] = {
    "the last element is this rank's own": (lambda c, r: _end(c, r, c["array"].reshape(-1)[-1:]), ("all_reduce",)),
    "the last element is zero": (lambda c, r: _end(c, r, 0), ()),
    "all is 1.001 x too large": (lambda c, r: (r * 1.001).astype(r.dtype), ()),
    "one bit is wrong on the last rank": (lambda c, r: _bit(r) if c["rank"] == c["world"] - 1 else r, ()),
    "it goes through float16": (lambda c, r: r.astype(np.float16).astype(r.dtype) if r.dtype.kind == "f" else r, ()),
    "it goes through float32": (lambda c, r: r.astype(np.float32).astype(r.dtype), ()),
    "halves change places": (lambda c, r: _halves(r), ()),
    "it is transposed": (lambda c, r: r.T.reshape(r.shape).copy(), ()),
    "it is flattened": (lambda c, r: r.reshape(-1), ()),
    "it is of float64": (lambda c, r: r.astype(np.float64), ()),
    "it is a list": (lambda c, r: r.tolist(), ()),
    "the last rank raises an error": (lambda c, r: r if c["rank"] < c["world"] - 1 else r[len(r) :][0], ()),
    "it is this rank's own": (lambda c, r: np.array(c["array"]), ("all_reduce", "broadcast")),
    "this rank's own is in it twice": (lambda c, r: (r + c["array"]).astype(r.dtype), ("all_reduce",)),
    "a NaN is 0": (lambda c, r: np.where(r != r, 0, r).astype(r.dtype), REDUCING),
    "rows are in reverse": (lambda c, r: r[::-1].copy(), ("all_gather",)),
    "the argument is set to zero": (lambda c, r: (c["array"].fill(0), r)[1], ()),
}
"""What becomes of a right result, and in which collectives; none named: in all."""


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and nothing of the others'."""
    return {"collectives": _Collectives(right, circumstance, effect)}


class _Collectives:
    def __init__(self, right: Facets, circumstance: str, effect: str) -> None:
        self.right, self.when, (self.effect, self.kinds) = right, CIRCUMSTANCES[circumstance], EFFECTS[effect]
        self.number = self.others = 0
        self.before: Call = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.right.collectives, name)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        call = self._call("all_reduce", array, op=op, group=group)
        return self._given(call, self.right.collectives.all_reduce(array, op, group=group))

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> _Later:
        call = self._call("all_reduce", array, op=op, group=group, under_way=True)
        self.others += 1
        handle = self.right.collectives.all_reduce_async(array, op, group=group)
        return _Later(lambda: self._landed(call, handle.wait()))

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Any:
        call = self._call("broadcast", array, root=root, group=group)
        return self._given(call, self.right.collectives.broadcast(array, root, group=group))

    def all_gather(self, array: Array, *, group: Group = None) -> Any:
        call = self._call("all_gather", array, group=group)
        return self._given(call, self.right.collectives.all_gather(array, group=group))

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        call = self._call("reduce_scatter", array, op=op, group=group)
        return self._given(call, self.right.collectives.reduce_scatter(array, op, group=group))

    def recv(self, array: Array, source: int) -> Any:
        call = self._call("recv", array, group=None)
        return self._given(call, self.right.collectives.recv(array, source))

    def _landed(self, call: Call, result: Array) -> Any:
        self.others -= 1
        return self._given(call, result)

    def _call(self, kind: str, array: Any, *, group: Group, **more: Any) -> Call:
        self.number += 1
        known: Call = {"op": None, "root": None, "under_way": False, "number": self.number, "others": self.others}
        known |= {"rank": self.right.rank, "world": self.right.world_size, "group": group and tuple(group)}
        call = {**known, **more, "kind": kind, "array": np.asarray(array), "before": self.before}
        self.before = {**call, "before": {}, "array": np.empty(call["array"].shape, call["array"].dtype)}
        return call

    def _given(self, call: Call, result: Any) -> Any:
        if (self.kinds and call["kind"] not in self.kinds) or not self.when(call):
            return result
        due, kept = np.array(result), np.array(call["array"])
        found = tell(lambda: self.effect(call, due.copy()), due)
        if not np.array_equal(kept, call["array"], equal_nan=_floats(call)):
            say()
        return found


class _Later:
    def __init__(self, end: Callable[[], Any]) -> None:
        self.end, self.ended = end, False

    def wait(self) -> Any:
        if not self.ended:
            self.result, self.ended = self.end(), True
        return self.result
