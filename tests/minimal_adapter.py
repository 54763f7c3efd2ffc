"""A minimal adapter: an all-reduce over multiprocessing.connection, without help from ddpcheck.

The file also has a wrong twin, one that hangs, and one whose ranks do not start.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np
import numpy.typing as npt

from ddpcheck import Adapter, Facets, RankContext
from ddpcheck.contract import TYPICAL

Array = npt.NDArray[Any]


class Star:
    """Rank 0 adds the other ranks' arrays in the order of ranks, and sends the sum back."""

    def __init__(self, context: RankContext) -> None:
        address = (context.master_addr, context.master_port)
        self.rank, self.links = context.rank, {}
        if context.rank:
            self.links[0] = _dial(address)
            self.links[0].send(context.rank)
        elif context.world_size > 1:
            with Listener(address, backlog=context.world_size) as listener:
                for link in [listener.accept() for _ in range(1, context.world_size)]:
                    self.links[link.recv()] = link

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        if self.rank:
            self.links[0].send(array)
            return np.asarray(self.links[0].recv())
        total = array.copy()
        for rank in sorted(self.links):
            total += self.links[rank].recv()
        for link in self.links.values():
            link.send(total)
        return total


def _dial(address: tuple[str, int]) -> Connection:
    until = time.monotonic() + 30
    while True:
        try:
            return Client(address)
        except ConnectionRefusedError:  # rank 0 is not listening yet
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def connect(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Star(context))


promises = TYPICAL.of_facets("collectives").but(operations=frozenset({"all_reduce"}), reductions=frozenset({"sum"}))
adapter = Adapter("minimal", connect, promises)


def connect_metrics(context: RankContext) -> Facets:
    star = Star(context)

    def aggregate(metrics: Mapping[str, float], count: int) -> dict[str, float]:
        names = sorted(metrics)
        sums = star.all_reduce(np.array([count, *(metrics[name] * count if count else 0.0 for name in names)]))
        return {name: total / sums[0] for name, total in zip(names, sums[1:].tolist(), strict=True)} if sums[0] else {}

    return Facets(rank=context.rank, world_size=context.world_size, aggregate_metrics=aggregate)


metrics_alone = Adapter("metrics_alone", connect_metrics, TYPICAL.of_facets("metrics"))


def connect_scores(context: RankContext) -> Facets:
    star = Star(context)

    def compute(name: str, outputs: Array, targets: Array, indices: Array) -> float:
        terms = outputs.argmax(axis=1) == targets if name == "accuracy" else np.square(outputs - targets)
        total, count = star.all_reduce(np.array([terms.sum(), terms.size], np.float64)).tolist()
        mean = total / count if count else float("nan")
        return float(mean if name == "accuracy" else mean**0.5)

    return Facets(rank=context.rank, world_size=context.world_size, compute_score=compute)


scores_alone = Adapter(
    "scores_alone",
    connect_scores,
    TYPICAL.of_facets("scores").but(score_names=frozenset({"accuracy", "rmse"})),
)


class Forgetful(Star):
    """Rank 0 sends the sum, but continues with its own array."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        total = super().all_reduce(array, op, group=group)
        return total if self.rank else array.copy()


class Sleepy(Star):
    """Never returns."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        time.sleep(3600)
        return array


def connect_forgetful(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Forgetful(context))


def connect_sleepy(context: RankContext) -> Facets:
    return Facets(rank=context.rank, world_size=context.world_size, collectives=Sleepy(context))


def connect_not_at_all(context: RankContext) -> Facets:
    raise OSError("no network today")


def connect_for_ever(context: RankContext) -> Facets:
    time.sleep(3600)
    return connect(context)


forgetful = Adapter("forgetful", connect_forgetful, promises)
sleepy = Adapter("sleepy", connect_sleepy, promises)
unstartable = Adapter("unstartable", connect_not_at_all, promises)
stuck = Adapter("stuck", connect_for_ever, promises)
absent = Adapter("absent", connect, promises, requires=("surely_not_installed",))
idle = Adapter("idle", connect, TYPICAL.of_facets(*frozenset()))
alone = Adapter("alone", connect, promises.but(world_sizes=frozenset({1})))
