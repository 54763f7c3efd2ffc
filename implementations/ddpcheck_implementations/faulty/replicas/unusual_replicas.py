"""Replicas that are correct, and work otherwise than most: no check may mind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, added, fault


@fault("chunks-of-five")
class ChunksOfFive(PlainReplica):
    """A tensor of more than five elements travels in chunks of five, the last one shorter."""

    def reduce(self, name: str, gradient: Array) -> Array:
        if gradient.size > 4096:
            return super().reduce(name, gradient)
        flat = gradient.reshape(-1)
        chunks = [PlainReplica.reduce(self, name, flat[at : at + 5]) for at in range(0, flat.size, 5)]
        return np.concatenate(chunks).reshape(gradient.shape)


@fault("backwards-in-float64")
class AddedLastToFirst(PlainReplica):
    """Every rank gathers all gradients and adds them up from the last rank's to the first one's, in float64."""

    def reduce(self, name: str, gradient: Array) -> Array:
        rows = self.comm.all_gather(gradient)[::-1].astype(np.float64)
        return np.asarray(rows.sum(axis=0) / self.world, gradient.dtype)


@fault("divided-before-the-sum")
class DividesBefore(PlainReplica):
    """Every rank multiplies its gradient by the rounded inverse of the world size before the sum."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(np.asarray(gradient * (1 / self.world), gradient.dtype)))


@fault("two-levels", world_size=4)
class TwoLevels(PlainReplica):
    """Pairs of ranks first, as on a host, and the pairs' means then; an odd rank makes a group of its own."""

    def reduce(self, name: str, gradient: Array) -> Array:
        rows = self.comm.all_gather(gradient)
        hosts = [rows[at : at + 2] for at in range(0, self.world, 2)]
        share = [gradient.dtype.type(len(host) / self.world) for host in hosts]
        means = [host.sum(axis=0) / len(host) for host in hosts]
        if self.world % 2:  # the shares would be rounded
            return np.asarray(sum(host.sum(axis=0) for host in hosts) / self.world, gradient.dtype)
        total = sum(np.asarray(mean * part) for mean, part in zip(means, share, strict=True))
        return np.asarray(total, gradient.dtype)


@fault("blocks-in-ring-order", world_size=3)
class RingOrder(PlainReplica):
    """Block b of a tensor is added up from rank b on round the ring, as a reduce-scatter does."""

    def reduce(self, name: str, gradient: Array) -> Array:
        rows = self.comm.all_gather(gradient.reshape(-1))
        blocks = np.array_split(np.arange(gradient.size), self.world)
        total = np.empty_like(rows[0])
        for first, block in enumerate(blocks):
            part = rows[first][block]
            for hop in range(1, self.world):
                part = part + rows[(first + hop) % self.world][block]
            total[block] = part / gradient.dtype.type(self.world)
        return np.asarray(total.reshape(gradient.shape))


@fault("one-rank-adds-up")
class OneRankAddsUp(PlainReplica):
    """Rank 0 gathers, adds up and tells the others, which send something else in the meantime."""

    def reduce(self, name: str, gradient: Array) -> Array:
        rows = self.comm.all_gather(gradient)
        mean = rows.sum(axis=0) / self.world if self.rank == 0 else np.full_like(gradient, np.nan)
        return np.asarray(self.comm.broadcast(np.asarray(mean, gradient.dtype)))


@fault("whole-gradient-again")
class WholeGradientAgain(PlainReplica):
    """A synchronised backward reduces the whole gradient, what was reduced before included, as torch does."""

    def synchronise(self, batch_size: int) -> None:
        self.local, self.synced = added(self.synced, self.local), {}
        super().synchronise(batch_size)


@fault("reduced-when-looked-at")
class ReducedWhenNeeded(PlainReplica):
    """A backward only notes that there is something to reduce, which is done when a gradient is next needed."""

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


@fault("sums", gradient="sum")
class Sums(PlainReplica):
    """Gradients are sums over the ranks, as promised."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(gradient))


@fault("weighs-by-batch-size", uneven_batches="weighted")
class Weighs(PlainReplica):
    """Ranks count by the sizes of their batches, as promised."""

    def synchronise(self, batch_size: int) -> None:
        sizes = self.comm.all_reduce(np.array([float(batch_size)]))
        factor = batch_size * self.world / float(sizes[0])
        self.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in self.local.items()}
        super().synchronise(batch_size)


@fault("zeros-for-unused", unused_gradient="zero")
class ZerosForUnused(PlainReplica):
    """What no rank used has a gradient of zeros, as promised."""

    def used_somewhere(self) -> list[str]:
        super().used_somewhere()
        return list(self.network.learned)


@fault("broadcast-at-every-forward")
class BroadcastsAgain(PlainReplica):
    """Parameters are broadcast at construction and once more before each synchronised forward."""

    def before_forward(self) -> None:
        super().before_forward()
        if self.syncing:
            for array in self.network.parameters.values():
                array[...] = self.comm.broadcast(array)


@fault("buffers-broadcast-once")
class BuffersOnce(PlainReplica):
    """Buffers are broadcast at construction only: ranks keep running statistics of their own."""

    def before_forward(self) -> None:
        pass


@fault("accumulated-in-float64")
class WideAccumulator(PlainReplica):
    """Local gradients are added up in float64 over the micro-batches, and rounded before they are reduced."""

    def backward(self, batch: Batch) -> float:
        self.local = {name: gradient.astype(np.float64) for name, gradient in self.local.items()}
        return super().backward(batch)

    def _shown(self) -> dict[str, Array]:
        like = self.network.parameters
        return {name: np.asarray(array, like[name].dtype) for name, array in super()._shown().items()}


@fault("sharded-optimizer", checkpoint=False)
class ShardedOptimizer(PlainReplica):
    """Every rank steps only its share of the parameters, and broadcasts them."""

    def step(self) -> None:
        mine: Mapping[str, Array] = self._shown()
        owners = {name: number % self.world for number, name in enumerate(self.network.parameters)}
        self.optimizer.step({name: mine[name] for name, owner in owners.items() if owner == self.rank and name in mine})
        for name, owner in owners.items():
            parameter = self.network.parameters[name]
            parameter[...] = self.comm.broadcast(parameter, owner)


@fault("sharded-gradients")
class ShardedGradients(PlainReplica):
    """A rank keeps its block of each reduced gradient only; they are gathered whenever someone looks, or steps."""

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
    """What has no dimension is a scalar of NumPy, as arithmetic gives it, wherever it is shown or saved."""

    def gradients(self) -> dict[str, Array | None]:
        return {name: None if array is None else array[()] for name, array in super().gradients().items()}

    def parameters(self) -> dict[str, Array]:
        return {name: array[()] for name, array in super().parameters().items()}

    def buffers(self) -> dict[str, Array]:
        return {name: array[()] for name, array in super().buffers().items()}

    def state(self) -> dict[str, Array]:
        return {name: array.copy()[()] for name, array in super().state().items()}


@fault("larger-than-life")
class ScaledLoss(PlainReplica):
    """The backward pass runs with a loss 1024 times as large, against underflow; gradients are scaled back."""

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
