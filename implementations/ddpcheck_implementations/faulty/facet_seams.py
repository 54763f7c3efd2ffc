"""Seams for faults of collectives, samplers, metrics and scores, and the adapters made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from .registry import Registering

Group = Sequence[int] | None
PROMISED = TYPICAL.of_facets("replica").but(
    subgroups=True, asynchronous=True, detects_dead_peer=True, distinct_streams=True, sampler_state=True
)


class PassThrough:
    """The sockets reference's collectives; a fault overrides one of them."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        self.comm, self.rank, self.world = comm, rank, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return np.asarray(self.comm.all_reduce(array, op, group=group))

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        array[...] = self.all_reduce(array, op, group=group)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.empty(shape, dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        return np.asarray(self.comm.broadcast(array, root, group=group))

    def size(self, group: Group) -> int:
        return self.world if group is None else len(group)


class PlainSampler:
    """A correct sampler: all ranks draw one order, and rank r of W takes every W-th index from r on."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        self.length, self.rank, self.world = length, rank, world
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = self.given = self.begin = 0

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.begin = self.given = 0
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        begin, self.begin = self.begin, 0
        self.given = begin
        return self.rest(self.share(self.padded(self.order())).tolist(), begin)

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        for self.given, index in enumerate(indices[begin:], start=begin + 1):
            yield index

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "given": self.given}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.epoch, self.begin = state["epoch"], state["given"]
        self.given = self.begin

    def __len__(self) -> int:
        return self.length // self.world if self.drop_last else -(-self.length // self.world)

    def order(self) -> Array:
        return np.random.default_rng(self.stream()).permutation(self.length) if self.shuffle else np.arange(self.length)

    def stream(self) -> Sequence[int]:
        """The seed of the order's generator."""
        return (self.seed, self.epoch)

    def padded(self, order: Array) -> Array:
        return np.resize(order, PlainSampler.__len__(self) * self.world)

    def share(self, order: Array) -> Array:
        return order[self.rank :: self.world]


class PlainStreams:
    """Correct random numbers: one generator of this rank, and one with the same seed on all ranks."""

    def __init__(self, rank: int, seed: int) -> None:
        self.rank, self.seed, self.epoch = rank, seed, 0
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.own = np.random.default_rng(self.key())
        self.shared = np.random.default_rng((self.seed, epoch, 0))

    def key(self) -> Sequence[int]:
        """The seed of the rank's generator."""
        return (self.seed, self.epoch, self.rank + 1)

    def local(self, count: int) -> Array:
        return self.own.random(count)

    def common(self, count: int) -> Array:
        return self.shared.random(count)


class Aggregate(Protocol):
    """Global means of local means over `count` samples each."""

    __name__: str
    __module__: str

    def __call__(self, comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]: ...


class ComputeScore(Protocol):
    """A score over the samples of all ranks."""

    __name__: str
    __module__: str

    def __call__(self, comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float: ...


@dataclass(frozen=True)
class _Connect:
    """An Adapter's connect(): the sockets reference with one facet replaced."""

    facet: str
    made: Any

    def __call__(self, context: RankContext) -> Facets:
        rank, world, made = context.rank, context.world_size, self.made
        if self.facet == "sampler":

            def make_sampler(length: int, *, shuffle: bool, seed: int, drop_last: bool) -> PlainSampler:
                sampler: PlainSampler = made(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
                return sampler

            return Facets(rank=rank, world_size=world, make_sampler=make_sampler)
        if self.facet == "randomness":
            return Facets(rank=rank, world_size=world, make_streams=partial(made, rank))
        from ..numpy_sockets import tcp  # over TCP the bytes of a fault can be counted from outside

        reference = tcp.connect(context)
        comm, close = reference.collectives, reference.close
        if self.facet == "collectives":
            return Facets(rank=rank, world_size=world, collectives=made(comm, rank, world), close=close)

        if self.facet == "scores":
            return Facets(rank=rank, world_size=world, compute_score=partial(made, comm, rank), close=close)

        def aggregate(metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
            result: Mapping[str, float] = made(comm, rank, metrics, count)
            return result

        return Facets(rank=rank, world_size=world, aggregate_metrics=aggregate, close=close)


def _registering(facet: str) -> Registering[Any]:
    return Registering(partial(_Connect, facet), PROMISED.of_facets(facet))


collectives: Registering[type[PassThrough]] = _registering("collectives")
sampler: Registering[type[PlainSampler]] = _registering("sampler")
streams: Registering[type[PlainStreams]] = _registering("randomness")
metrics: Registering[Aggregate] = _registering("metrics")
scores: Registering[ComputeScore] = _registering("scores")
