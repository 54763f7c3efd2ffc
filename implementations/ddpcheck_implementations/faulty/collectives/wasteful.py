"""Collectives and replicas that give right values but send too many bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.contract import Traffic
from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..bucketed import Bucket, BucketReplica
from ..engine.circumstances import always, dtype
from ..engine.collective_effects import instead, through
from ..engine.collectives import Call, all_reduce, op
from ..engine.fault import Fault, table
from ..engine.gradients import through as gradient_through
from ..engine.replicas import Made, after, inside_no_sync
from ..facet_seams import Group, PassThrough, collectives

LEAST = "check_large_collectives_send_no_excess_bytes"
ONCE = "check_backward_sends_gradients_only_once"
SILENT = "check_nothing_is_sent_inside_no_sync"
GROWS = "check_traffic_does_not_grow_from_step_to_step"
TOGETHER = "check_small_gradients_share_messages"


@collectives(
    "full-tensor-ring",
    LEAST,
    seen_in=("callummcdougall/ARENA_3.0#407",),
    cause="ring-sends-whole-array",
    traffic=Traffic.LEAST,
)
class WholeArrayRing(PassThrough):
    """Each of the 2 (W - 1) ring steps sends the whole array instead of 1 / W of it."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum" or self.size(group) == 1:
            return super().all_reduce(array, op, group=group)
        ranks = list(range(self.world) if group is None else group)
        place, size = ranks.index(self.rank), len(ranks)
        after, before = ranks[(place + 1) % size], ranks[place - 1]
        rows, passing = {self.rank: array}, array
        for step in range(2 * (size - 1)):
            if place:
                self.comm.send(passing, after)
            got = self.comm.recv(passing, before)
            if not place:
                self.comm.send(passing, after)
            passing = got
            rows.setdefault(ranks[(place - step - 1) % size], got)
        return np.asarray(sum(rows[rank] for rank in ranks)).astype(array.dtype)


@collectives(
    "gather-then-broadcast",
    LEAST,
    cause="everything-through-one-rank",
    world_size=3,
    traffic=Traffic.LEAST,
)
class ThroughOneRank(PassThrough):
    """Rank 0 receives all arrays and sends the result to every rank."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        first, *others = range(self.world) if group is None else group
        if op != "sum" or not others:
            return super().all_reduce(array, op, group=group)
        if self.rank != first:
            self.comm.send(array, first)
            return np.asarray(self.comm.recv(array, first))
        result = np.asarray(sum((self.comm.recv(array, rank) for rank in others), array)).astype(array.dtype)
        for rank in others:
            self.comm.send(result, rank)
        return result


@instead
def mean_of_what_is_gathered(call: Call) -> Array:
    return np.asarray(np.mean(call.gathered(), axis=0, dtype=call.array.dtype))


@after("backward")
def local_gradients_reduced_for_nothing(replica: PlainReplica, batch: Batch) -> None:
    for name in replica.used_somewhere():
        replica.reduce(name, replica.mine(name))


@fault("window-sent-once-per-micro-batch", ONCE, cause="more-than-least", traffic=Traffic.LEAST)
class OncePerMicroBatch(PlainReplica):
    """At the end of an accumulation window, each micro-batch's gradients are reduced separately."""

    def __init__(self, *args: object) -> None:
        self.inside = 0
        super().__init__(*args)  # type: ignore[arg-type]  # passed on unchanged

    def before_forward(self) -> None:
        super().before_forward()
        self.inside = 0 if self.syncing and not self.inside else self.inside + 1

    def reduce(self, name: str, gradient: Array) -> Array:
        for _ in range(self.inside):
            super().reduce(name, np.zeros_like(gradient))
        return super().reduce(name, gradient)


class Growing(PlainReplica):
    """steps: number of steps taken."""

    steps = 0

    def step(self) -> None:
        super().step()
        self.steps += 1


@fault("hook-added-in-every-step", GROWS, cause="traffic-grows-with-steps")
class HookInEveryStep(Growing):
    """Each step adds a hook that reduces all gradients once more."""

    def reduce(self, name: str, gradient: Array) -> Array:
        for _ in range(self.steps):
            super().reduce(name, gradient)
        return super().reduce(name, gradient)


@fault("buckets-halved-in-every-step", GROWS, cause="messages-grow-with-steps")
class SmallerEachTime(Growing):
    """Each step sends its gradients in pieces half as large as in the step before."""

    def reduce(self, name: str, gradient: Array) -> Array:
        pieces = np.array_split(gradient.reshape(-1), max(1, min(gradient.size, 2**self.steps)))
        reduced = [PlainReplica.reduce(self, name, piece) for piece in pieces]
        return np.concatenate(reduced).reshape(gradient.shape)


@fault("reduced-in-backward-and-in-step")
class ReducedTwice(PlainReplica):
    """Correct without a promise on traffic: gradients are reduced in backward and again in step()."""

    def step(self) -> None:
        for name, gradient in self.synced.items():
            PlainReplica.reduce(self, name, gradient)
        super().step()


@fault("flush-counter-not-reset")
class FlushesEveryGradient(BucketReplica):
    """Correct without a promise on traffic: after the first full bucket, each gradient is sent alone."""

    cap = 1 << 16

    def lay_out(self, order: Sequence[str]) -> list[Bucket]:
        buckets, size = list[Bucket]([()]), 0
        for name in order:
            buckets[-1] += (name,)
            size += self.network.parameters[name].nbytes
            if size >= self.cap:
                buckets.append(())
        return [bucket for bucket in buckets if bucket]


# fmt: off
table(
    globals(),
    Fault("sent-twice-as-wide", "All-reduce sends float32 arrays as float64.",
          where=all_reduce & dtype("float32"), effect=through("float64"),
          caught_by=LEAST, cause="ring-sends-whole-array", traffic=Traffic.LEAST),
    Fault("means-by-gathering", "All-reduce computes means by gathering all arrays.",
          where=all_reduce & op("mean"), effect=mean_of_what_is_gathered,
          caught_by=LEAST, cause="whole-array-to-all", world_size=3, traffic=Traffic.ONCE),
    Fault("no-sync-reduces-all-the-same", "Backward inside no_sync reduces the gradients and ignores the result.",
          where=inside_no_sync, effect=local_gradients_reduced_for_nothing,
          caught_by=SILENT, cause="reduced-inside-no-sync"),
    Fault("gradients-sent-as-float64", "Gradients are sent as float64.",
          where=always, effect=gradient_through("float64"),
          caught_by=ONCE, cause="ring-sends-whole-array", traffic=Traffic.LEAST),
    Fault("bucketing-off", "Each gradient is sent in a message of its own, although bundling is promised.",
          where=always, effect=Made(PlainReplica),
          caught_by=TOGETHER, cause="gradients-sent-alone", bundles_gradients=True),
)
# fmt: on
