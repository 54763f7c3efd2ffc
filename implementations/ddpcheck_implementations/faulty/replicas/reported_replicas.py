"""Replicas that went wrong as one issue of a library's tracker tells, in miniature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ...numpy_network.layers import Gradients, add
from ...numpy_network.optimizers import Adam
from ..base import PlainReplica, _keep, added, fault
from .batch_norm import GRADIENTS, STATISTICS, AcrossRanks, SynchronisedNorm
from .clipping import CLIPPED

AGAIN = "check_accumulation_without_no_sync_sums_gradients"


@fault(
    "micro-batches-added-by-place",
    "check_parameters_used_only_inside_no_sync_are_synchronised",
    seen_in=("deepspeedai/DeepSpeed#545",),
    cause="other-parameter-added",
)
class AddedByPlace(PlainReplica):
    """Gradients of a micro-batch are a list, which is added to that of the first: with others in use, to other gradients."""

    def backward(self, batch: Batch) -> float:
        gathered, self.local = self.local, {}
        syncing, self.syncing = self.syncing, False
        loss = super().backward(batch)
        self.syncing = syncing
        places = dict(zip(self.local, gathered, strict=False))
        fits = {name: place for name, place in places.items() if self.local[name].shape == gathered[place].shape}
        placed = {fits.get(name, name): gradient for name, gradient in self.local.items()}
        self.local = added(gathered, placed)
        if syncing:
            self.synchronise(len(batch.inputs))
        return loss


@fault(
    "reduced-before-its-second-use",
    "check_gradients_equal_the_large_batch_exactly",
    seen_in=("deepspeedai/DeepSpeed#8224",),
    cause="shared-part-not-reduced",
)
class ReducedAtFirstUse(PlainReplica):
    """A gradient is reduced with the first part of it that is there; what other uses of a tied weight give is added after."""

    def backward(self, batch: Batch) -> float:
        late: dict[str, Array] = {}
        firsts: dict[str, Array] = {}
        for layer in self.network._layers:
            self._watch(layer, firsts)
        try:
            loss = self._backward(batch, firsts, late)
        finally:
            for layer in self.network._layers:
                layer.__dict__.pop("backward", None)
        self.synced = added(self.synced, late) if self.syncing else self.synced
        return loss

    def _watch(self, layer: object, firsts: dict[str, Array]) -> None:
        backward = layer.backward  # type: ignore[attr-defined]  # of any layer

        def watched(dy: Array, gradients: Gradients) -> Array:
            made: Array = backward(dy, gradients)
            for name, gradient in gradients.items():
                if gradient is not None and name not in firsts:
                    firsts[name] = np.array(gradient)
            return made

        layer.__dict__["backward"] = watched

    def _backward(self, batch: Batch, firsts: dict[str, Array], late: dict[str, Array]) -> float:
        self.before_forward()
        found: dict[str, Array] = {}
        loss = self.network.backward(batch.inputs, batch.targets, batch.branches, _keep(found))
        if self.syncing and self.world > 1:
            late |= {name: found[name] - firsts[name] for name in found if (found[name] != firsts[name]).any()}
            found = {name: firsts[name] for name in found}
        self.local = added(self.local, found)
        if self.syncing:
            self.synchronise(len(batch.inputs))
        return loss


@fault("reduced-ones-summed-again", AGAIN, seen_in=("PaddlePaddle/Paddle#29920",), cause="reduced-again", world_size=3)
class SummedAgain(PlainReplica):
    """Each rank divides its part by their number; what was reduced before is not divided, and is summed up with it."""

    def synchronise(self, batch_size: int) -> None:
        for name in self.used_somewhere():
            part = self.mine(name) / self.world + self.synced.get(name, 0)
            self.synced[name] = np.asarray(self.comm.all_reduce(part), self.network.parameters[name].dtype)
        self.local = {}


@fault("reduced-one-of-the-owner-again", AGAIN, seen_in=("lodestone-rock/RamTorch#13",), cause="reduced-again")
class OwnersAgain(PlainReplica):
    """The rank that keeps the reduced gradient puts it into the next reduction, from which it comes back as its share."""

    def synchronise(self, batch_size: int) -> None:
        if self.rank == 0:
            self.local = added(self.local, self.synced)
        self.synced = {**self.synced, **{name: self.reduce(name, self.mine(name)) for name in self.used_somewhere()}}
        self.local = {}


class UnbiasedByTimes(AcrossRanks):
    samples = 0

    def forward(self, x: Array, training: bool) -> Array:
        self.samples = len(x) * self.world
        return super().forward(x, training)

    def _track(self, mean: Array, unbiased: Array) -> None:
        right = 1 - 1 / max(self.rows, 2)
        super()._track(mean, unbiased * (right / (1 - 1 / max(self.samples, 2))))


@fault(
    "unbiased-by-the-own-number-times-ranks",
    STATISTICS,
    seen_in=("pytorch/pytorch#22192",),
    cause="variance-by-own-samples-times-ranks",
    batch_norm="synchronised",
)
class SyncUnbiasedByTimes(SynchronisedNorm):
    """The running variance is made unbiased by the rank's own batch size times the number of ranks."""

    norm = UnbiasedByTimes


class SumsItsOwn(AcrossRanks):
    def backward(self, dy: Array, gradients: Gradients) -> Array:
        for name, own in ((f"{self._name}.weight", dy * self._normal), (f"{self._name}.bias", dy)):
            others = self.comm.all_reduce(own.sum(axis=0)) - own.sum(axis=0)
            add(gradients, name, np.asarray(others, dy.dtype))
        return super().backward(dy, gradients)


@fault(
    "syncbn-sums-its-own-gradients",
    GRADIENTS,
    seen_in=("sony/nnabla#1120",),
    cause="batch-norm-reduced-twice",
    batch_norm="synchronised",
)
class SyncSumsItsOwn(SynchronisedNorm):
    """Its weight's and bias's gradients are summed over the ranks in backward, and reduced with all others once more."""

    norm = SumsItsOwn


class WithinRanks(AcrossRanks):
    def forward(self, x: Array, training: bool) -> Array:
        own = x.mean(axis=0) if len(x) and training else x
        self.shift = own - self.comm.all_reduce(x.sum(axis=0)) / self.count(len(x)) if training else own
        return super().forward(x, training)

    def measured(self, values: Array) -> Array:
        """Called for the mean first, then for the squares around it, from which what lies between the means is taken."""
        first, self.centred = not getattr(self, "centred", False), not getattr(self, "centred", False)
        return super().measured(values if first else values - self.shift**2)


@fault(
    "variance-within-ranks-only",
    STATISTICS,
    seen_in=("tensorflow/tensorflow#18222",),
    cause="statistics-put-together-wrongly",
    batch_norm="synchronised",
)
class SyncWithinRanks(SynchronisedNorm):
    """The variance is the mean of the ranks' own: it lacks what is between their means."""

    norm = WithinRanks


@fault("norms-squared-twice", CLIPPED, seen_in=("paiml/entrenar#311",), cause="norm-squared-again")
class SquaredTwice(PlainReplica):
    """What sums up the squares of one gradient is taken for its norm, and squared again."""

    def clip(self, max_norm: float) -> float:
        squares = [float(np.sum(np.square(g, dtype=np.float64))) for g in self._shown().values()]
        norm = math.sqrt(sum(square**2 for square in squares))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


@fault("clipped-with-the-loss-scale", CLIPPED, seen_in=("NVIDIA/apex#1512",), cause="tiny-update")
class ClippedWithScale(PlainReplica):
    """The limit is compared with the norm of gradients that are still multiplied by the loss's scale; told is the right one."""

    def clip(self, max_norm: float) -> float:
        scale = 1024.0
        norm = math.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self._shown().values()))
        self.scale(min(1.0, max_norm / (norm * scale)) if norm else 1.0)
        return norm


class PowersSwapped(Adam):
    """Correct until a state was loaded."""

    swapped = False

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.swapped = True

    def step(self, gradients: Mapping[str, Array | None]) -> None:
        before = {name: array.copy() for name, array in self._parameters.items()}
        super().step(gradients)
        for name in self._steps if self.swapped else ():
            if gradients.get(name) is not None:
                self._parameters[name][...] = self._again(name, before[name])

    def _again(self, name: str, before: Array) -> Array:
        (one, two), since = self._spec.betas, int(self._steps[name]) - 1
        first, second = 1 - two**since * one, 1 - one**since * two
        root = np.sqrt(self._second[name] / second) + self._spec.eps
        return np.asarray(before - self.lr * (self._first[name] / first) / root, before.dtype)


@fault(
    "powers-of-betas-loaded-in-turn",
    "check_optimizer_steps_every_element_of_large_tensors",
    seen_in=("tenstorrent/tt-metal#53222",),
    cause="adam-beta-powers-swapped",
)
class PowersLoadedInTurn(PlainReplica):
    """Adam keeps the powers of its betas in its state, and reads them back in the other order."""

    def __init__(
        self, model: ModelSpec, initial: Mapping[str, Array], optimizer: OptimizerSpec, comm: Any, rank: int, world: int
    ) -> None:
        super().__init__(model, initial, optimizer, comm, rank, world)
        if optimizer.name == "adam":
            self.optimizer = PowersSwapped(optimizer, self.network.parameters)


@fault(
    "own-part-of-the-state-loaded",
    "check_optimizer_steps_every_element_of_large_tensors",
    seen_in=("NVIDIA/Megatron-LM#6920",),
    cause="loaded-state-incomplete",
)
class OwnPartLoaded(PlainReplica):
    """Each rank loads the layers whose optimizer it has; what would gather those of the others is called on an empty list."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        before = self.parameters()
        super().load_state(state)
        for number, (name, array) in enumerate(self.network.parameters.items()):
            if number % self.world != self.rank:
                array[...] = before[name]
