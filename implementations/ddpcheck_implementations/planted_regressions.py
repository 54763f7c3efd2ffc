"""The sockets reference, made slower or with more traffic on purpose: regressions that a gate must find.

Results stay right. `times_N` runs each backward of a step and each all_reduce N times: times_11 has 10 % more work than
times_10, and times_5 25 % more than times_4. `extra_all_reduce` adds one all_reduce to each backward. `unbucketed` has one for
each parameter. `doubled` sends float32 as float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Adapter, Batch, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from . import numpy_sockets
from .data_parallel import numpy_facets
from .faulty.base import PlainReplica, facets

_ONE = np.ones(1, np.float32)


class _Through:
    """A proxy of another object; subclasses override some methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Repeating(_Through):
    """A replica or collectives with repeated work. Steps of the replica must begin with zero_grad()."""

    def __init__(self, inner: Any, times: int) -> None:
        super().__init__(inner)
        self._times = times

    def backward(self, batch: Batch) -> float:
        for _ in range(self._times - 1):
            self._inner.backward(batch)
            self._inner.zero_grad()
        loss: float = self._inner.backward(batch)
        return loss

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        for _ in range(self._times - 1):
            self._inner.all_reduce(array, op, group=group)
        result: Array = self._inner.all_reduce(array, op, group=group)
        return result

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> None:
        for _ in range(self._times - 1):
            self._inner.all_reduce_in_place(array.copy(), op, group=group)
        self._inner.all_reduce_in_place(array, op, group=group)


class _Doubled(_Through):
    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        wide = array.astype(np.float64) if array.dtype == np.float32 else array
        result: Array = self._inner.all_reduce(wide, op, group=group).astype(array.dtype)
        return result

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> None:
        array[...] = self.all_reduce(array, op, group=group)


class _ExtraAllReduce(_Through):
    def __init__(self, inner: Any, collectives: Any) -> None:
        super().__init__(inner)
        self._collectives = collectives

    def backward(self, batch: Batch) -> float:
        loss: float = self._inner.backward(batch)
        self._collectives.all_reduce(_ONE)
        return loss


@dataclass(frozen=True)
class _Connect:
    """An Adapter's connect(): changed facets of the reference, and its counts."""

    change: Callable[[Facets, RankContext], Facets]

    def __call__(self, context: RankContext) -> Facets:
        reference = numpy_sockets.connect(context)
        return dataclasses.replace(self.change(reference, context), counts=reference.counts)


def _replica(reference: Facets, wrap: Callable[[Any], Any]) -> Facets:
    make: Any = reference.make_replica
    return dataclasses.replace(reference, make_replica=lambda *arguments: wrap(make(*arguments)))


def _repeating(times: int) -> Callable[[Facets, RankContext], Facets]:
    def change(reference: Facets, context: RankContext) -> Facets:
        changed = _replica(reference, lambda replica: _Repeating(replica, times))
        return dataclasses.replace(changed, collectives=_Repeating(reference.collectives, times))

    return change


def _doubled(reference: Facets, context: RankContext) -> Facets:
    collectives: Any = _Doubled(reference.collectives)
    return numpy_facets(collectives, context.rank, context.world_size, reference.close)


def _unbucketed(reference: Facets, context: RankContext) -> Facets:
    plain = facets(PlainReplica, reference.collectives, context.rank, context.world_size)
    return dataclasses.replace(reference, make_replica=plain.make_replica)


def _adapter(name: str, change: Callable[[Facets, RankContext], Facets], description: str) -> Adapter:
    return Adapter(f"planted {name}", _Connect(change), numpy_sockets.adapter.capabilities, description=description)


plain = _adapter("plain", lambda reference, context: reference, "the sockets reference, as it is")
times_4, times_5, times_10, times_11 = (
    _adapter(f"times_{times}", _repeating(times), f"{times} times the work") for times in (4, 5, 10, 11)
)
extra_all_reduce = _adapter(
    "extra_all_reduce",
    lambda reference, context: _replica(reference, lambda replica: _ExtraAllReduce(replica, reference.collectives)),
    "one more all_reduce for each backward",
)
unbucketed = _adapter("unbucketed", _unbucketed, "an all_reduce for each parameter")
doubled = _adapter("doubled", _doubled, "float32 travels as float64")
