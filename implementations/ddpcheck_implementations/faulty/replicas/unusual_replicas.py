"""Replicas that are correct but unusual."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..engine.circumstances import always, larger
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, instead, summed
from ..engine.replicas import (
    after,
    all_are_used,
    before,
    in_place_of,
    inside_no_sync,
    nothing,
    sharded_step,
    weighted_by_batch_size,
)


@instead
def in_chunks_of_five(gradient: Gradient) -> Array:
    """The last chunk may be shorter."""
    flat = gradient.array.reshape(-1)
    chunks = [gradient.replica.comm.all_reduce(flat[at : at + 5]) / gradient.world for at in range(0, flat.size, 5)]
    return np.concatenate(chunks).reshape(gradient.array.shape)


@instead
def added_from_last_to_first_in_float64(gradient: Gradient) -> Array:
    return np.asarray(gradient.gathered()[::-1].astype(np.float64).sum(axis=0) / gradient.world)


@instead
def multiplied_by_the_rounded_inverse(gradient: Gradient) -> Array:
    """Multiply by the rounded inverse of the world size before the sum."""
    return np.asarray(gradient.replica.comm.all_reduce(gradient.cast(gradient.array * (1 / gradient.world))))


@instead
def mean_of_pairs_first(gradient: Gradient) -> Array:
    """Like hosts of two ranks; at odd world sizes the last host has one rank."""
    rows, world, dtype = gradient.gathered(), gradient.world, gradient.array.dtype
    hosts = [rows[at : at + 2] for at in range(0, world, 2)]
    if world % 2:  # shares of an odd world size would be rounded
        return np.asarray(sum(host.sum(axis=0) for host in hosts) / world)
    shares = [dtype.type(len(host) / world) for host in hosts]
    return np.asarray(sum(host.sum(axis=0) / len(host) * share for host, share in zip(hosts, shares, strict=True)))


@instead
def blocks_in_the_order_of_a_ring(gradient: Gradient) -> Array:
    """Block b is added from rank b on, as in a ring reduce-scatter."""
    rows = gradient.replica.comm.all_gather(gradient.array.reshape(-1))
    total = np.empty_like(rows[0])
    for first, block in enumerate(np.array_split(np.arange(gradient.array.size), gradient.world)):
        part = rows[first][block]
        for hop in range(1, gradient.world):
            part = part + rows[(first + hop) % gradient.world][block]
        total[block] = part / gradient.array.dtype.type(gradient.world)
    return np.asarray(total.reshape(gradient.array.shape))


@instead
def added_up_on_rank_0(gradient: Gradient) -> Array:
    """Rank 0 broadcasts the mean; other ranks pass NaN to the broadcast."""
    rows = gradient.gathered()
    mean = rows.sum(axis=0) / gradient.world if gradient.rank == 0 else np.full_like(gradient.array, np.nan)
    return np.asarray(gradient.replica.comm.broadcast(gradient.cast(mean)))


@before("synchronise")
def whole_gradient_again(replica: PlainReplica, batch_size: int) -> None:
    """Reduce earlier reduced gradients once more, as torch does."""
    replica.local, replica.synced = added(replica.synced, replica.local), {}


@fault("reduced-when-looked-at")
class ReducedWhenNeeded(PlainReplica):
    """Correct: gradients are reduced when they are next needed."""

    def synchronise(self, batch_size: int) -> None:
        self.due = added(getattr(self, "due", {}), self.local)
        self.local, self.noted = {}, True

    def zero_grad(self) -> None:
        super().zero_grad()
        self.due, self.noted = {}, False

    def _shown(self) -> dict[str, Array]:
        if getattr(self, "noted", False):
            kept, self.local = self.local, self.due
            PlainReplica.synchronise(self, 0)
            self.local, self.due, self.noted = kept, {}, False
        return super()._shown()

    def clip(self, max_norm: float) -> float:
        self._shown()
        return super().clip(max_norm)


@after("before_forward")
def parameters_broadcast(replica: PlainReplica) -> None:
    for array in replica.network.parameters.values():
        array[...] = replica.comm.broadcast(array)


@fault("accumulated-in-float64")
class WideAccumulator(PlainReplica):
    """Correct: micro-batches are accumulated in float64 and rounded before the reduction."""

    def backward(self, batch: Batch) -> float:
        self.local = {name: gradient.astype(np.float64) for name, gradient in self.local.items()}
        return super().backward(batch)

    def _shown(self) -> dict[str, Array]:
        like = self.network.parameters
        return {name: np.asarray(array, like[name].dtype) for name, array in super()._shown().items()}


def owners(replica: PlainReplica, owners: dict[str, int]) -> dict[str, int]:
    return owners


@fault("sharded-gradients")
class ShardedGradients(PlainReplica):
    """Correct: each rank stores one block of each reduced gradient and gathers them when needed."""

    def reduce(self, name: str, gradient: Array) -> Array:
        padded = np.pad(gradient.reshape(-1), (0, -gradient.size % self.world))
        return np.split(super().reduce(name, padded), self.world)[self.rank].copy()

    def _shown(self) -> dict[str, Array]:
        kept, like = self.synced, self.network.parameters
        self.synced = {
            name: self.comm.all_gather(block).reshape(-1)[: like[name].size].reshape(like[name].shape)
            for name, block in kept.items()
        }
        shown = super()._shown()
        self.synced = kept
        return shown

    def zero_gradients(self) -> None:
        blocks = {name: np.zeros(-(-zeros.size // self.world), zeros.dtype) for name, zeros in self._shown().items()}
        super().zero_gradients()
        self.synced = blocks


@fault("scalars-of-numpy")
class ScalarsOfNumPy(PlainReplica):
    """Correct: arrays without dimensions are NumPy scalars."""

    def gradients(self) -> dict[str, Array | None]:
        return {name: None if array is None else array[()] for name, array in super().gradients().items()}

    def parameters(self) -> dict[str, Array]:
        return {name: array[()] for name, array in super().parameters().items()}

    def buffers(self) -> dict[str, Array]:
        return {name: array[()] for name, array in super().buffers().items()}

    def state(self) -> dict[str, Array]:
        return {name: array.copy()[()] for name, array in super().state().items()}


@fault("loss-scaled-by-1024")
class ScaledLoss(PlainReplica):
    """Correct: the loss is multiplied by 1,024 against underflow, and gradients are divided again."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        plain = self.network._loss

        def larger(outputs: Array, targets: Array) -> tuple[float, Array]:
            loss, dy = plain(outputs, targets)
            return loss, dy * dy.dtype.type(1024)

        self.network._loss = larger

    def backward(self, batch: Batch) -> float:
        kept, self.local, syncing, self.syncing = self.local, {}, self.syncing, False
        self.before_forward_if(syncing)
        loss = super().backward(batch)
        self.syncing = syncing
        self.local = added(kept, {name: gradient / gradient.dtype.type(1024) for name, gradient in self.local.items()})
        if syncing:
            self.synchronise(len(batch.inputs))
        return loss

    def before_forward_if(self, syncing: bool) -> None:
        self.syncing = syncing
        self.before_forward()
        self.syncing = False


# fmt: off
table(
    globals(),
    Fault("chunks-of-five", "Correct: small gradients are reduced in chunks of five elements.",
          where=~larger(4096), effect=in_chunks_of_five),
    Fault("backwards-in-float64", "Correct: gradients are added in float64, from the last rank to the first.",
          where=always, effect=added_from_last_to_first_in_float64),
    Fault("divided-before-the-sum",
          "Correct: gradients are multiplied by the rounded inverse of the world size before the sum.",
          where=always, effect=multiplied_by_the_rounded_inverse),
    Fault("two-levels", "Correct: pairs of ranks are averaged first.",
          where=always, effect=mean_of_pairs_first,
          world_size=4),
    Fault("blocks-in-ring-order", "Correct: each block is added in the order of a ring.",
          where=always, effect=blocks_in_the_order_of_a_ring,
          world_size=3),
    Fault("one-rank-adds-up", "Correct: rank 0 adds the gradients and broadcasts the mean.",
          where=always, effect=added_up_on_rank_0),
    Fault("whole-gradient-again", "Correct: reduced gradients are reduced again with new ones, as in torch.",
          where=always, effect=whole_gradient_again),
    Fault("sums", "Correct if promised: gradients are summed.",
          where=always, effect=summed,
          gradient="sum"),
    Fault("weighs-by-batch-size", "Correct if promised: ranks are weighted by batch size.",
          where=always, effect=weighted_by_batch_size,
          uneven_batches="weighted"),
    Fault("zeros-for-unused", "Correct if promised: a parameter that no rank used has a zero gradient.",
          where=always, effect=all_are_used,
          unused_gradient="zero"),
    Fault("broadcast-at-every-forward", "Correct: parameters are broadcast at every synchronised forward.",
          where=~inside_no_sync, effect=parameters_broadcast),
    Fault("buffers-broadcast-once", "Correct without the promise: buffers are broadcast at construction only.",
          where=always, effect=in_place_of("before_forward")(nothing)),
    Fault("sharded-optimizer", "Correct: each rank steps a part of the parameters and broadcasts it.",
          where=always, effect=sharded_step(owners),
          checkpoint=False),
)
# fmt: on
