"""Replicas that are wrong on ranks without further batches, inside join()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import Made, after, around, optimizer_part

JOIN = "check_join_handles_ranks_out_of_batches"


class Joining(PlainReplica):
    """Correct: every step counts the ranks with batches; the other ranks join with zeros."""

    joining = False
    live = 0

    @contextmanager
    def join(self) -> Iterator[None]:
        self.joining = True
        try:
            yield
            while self.count(0):
                self.join_step()
        finally:
            self.joining = False

    def count(self, mine: int) -> int:
        self.live = int(self.comm.all_reduce(np.array([float(mine)]))[0])
        return self.live

    def join_step(self) -> None:
        self.zero_grad()
        self.before_forward()
        self.local = self.nothing()
        self.synchronise(0)
        self.step()

    def nothing(self) -> dict[str, Array]:
        return {}

    def backward(self, batch: Batch) -> float:
        if self.joining:
            self.count(1)
        return super().backward(batch)


joined = fault("join", seen_in=("pytorch/pytorch#38174",), join="divide_by_initial_world")(Joining)


class ByLiveRanks(Joining):
    """Correct if promised: the sum is divided by the number of ranks with batches."""

    def reduce(self, name: str, gradient: Array) -> Array:
        ranks = self.live if self.joining else self.world
        return np.asarray(self.comm.all_reduce(gradient) / ranks, gradient.dtype)


by_live_ranks = fault("join-by-live-ranks", seen_in=("pytorch/pytorch#42577",), join="divide_by_live_ranks")(
    ByLiveRanks
)


@fault("joined-rank-sends-stale", JOIN, cause="join-stale-gradient", join="divide_by_initial_world")
class SendsStale(Joining):
    """Inside join(), a rank without batches sends its last gradient again."""

    last: dict[str, Array] = {}  # noqa: RUF012  # never changed in place

    def synchronise(self, batch_size: int) -> None:
        self.last = dict(self.local)
        super().synchronise(batch_size)

    def nothing(self) -> dict[str, Array]:
        return self.last


@around("join_step")
def without_a_step(replica: Any, join_step: Callable[[], None]) -> None:
    replica.step, step = lambda: None, replica.step
    join_step()
    replica.step = step


@fault(
    "joined-rank-leaves-buffers-to-others",
    JOIN,
    seen_in=("pytorch/pytorch#65436",),
    cause="join-without-buffers",
    join="divide_by_initial_world",
)
class LeavesBuffers(Joining):
    """Inside join(), a rank without batches takes no part in broadcasts of buffers."""

    gone = False

    def join_step(self) -> None:
        self.gone = True
        super().join_step()
        self.gone = False

    def before_forward(self) -> None:
        if not self.gone:
            super().before_forward()


@after("join_step")
def momentum_zeroed(replica: PlainReplica) -> None:
    for velocity in optimizer_part(replica, "velocity").values():
        velocity[...] = 0


@fault("join-ends-with-the-values-of-rank-0", JOIN, cause="join-ends-at-rank", join="divide_by_initial_world")
class EndsWithRank0(Joining):
    """A rank without batches takes no steps; at the end all ranks get rank 0's parameters, however many steps it took."""

    @contextmanager
    def join(self) -> Iterator[None]:
        step = self.step
        with super().join():
            yield
            self.step = lambda: None  # type: ignore[method-assign]  # inside join_step()
        self.step = step  # type: ignore[method-assign]
        self.start_from_rank_0()

    def start_from_rank_0(self) -> None:
        for array in self.network.tensors.values():
            array[...] = self.comm.broadcast(array)


@fault(
    "second-join-sends-stale-gradients",
    JOIN,
    cause="join-leaves-state",
    join="divide_by_initial_world",
)
class StaleInTheSecond(Joining):
    """Inside the second join(), a rank without batches sends old gradients."""

    last: dict[str, Array]
    sent: dict[str, Array]

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.last, self.sent = {}, {}

    def nothing(self) -> dict[str, Array]:
        return {name: gradient.copy() for name, gradient in self.sent.items()}

    @contextmanager
    def join(self) -> Iterator[None]:
        with super().join():
            yield
        self.sent = self.last

    def synchronise(self, batch_size: int) -> None:
        self.last = dict(self.local) if batch_size else self.last
        super().synchronise(batch_size)


# fmt: off
table(
    globals(),
    Fault("join-divides-by-wrong-world",
          "Inside join(), the sum is divided by the number of ranks with batches, not by the world size.",
          where=always, effect=Made(ByLiveRanks),
          caught_by=JOIN, cause="join-wrong-divisor", seen_in=("pytorch/pytorch#42577",),
          join="divide_by_initial_world"),
    Fault("join-divides-by-all-ranks",
          "Inside join(), the sum is divided by the world size, not by the number of ranks with batches.",
          where=always, effect=Made(Joining),
          caught_by=JOIN, cause="join-wrong-divisor", seen_in=("pytorch/pytorch#42577",), join="divide_by_live_ranks"),
    Fault("joined-rank-keeps-old-parameters", "Inside join(), a rank without batches takes no steps.",
          where=always, effect=without_a_step.of(Joining),
          caught_by=JOIN, cause="join-steps-missing", join="divide_by_initial_world"),
    Fault("joined-rank-loses-momentum", "Inside join(), a rank without batches resets its momentum.",
          where=always, effect=momentum_zeroed.of(Joining),
          caught_by=JOIN, cause="join-steps-missing", join="divide_by_initial_world"),
)
# fmt: on
