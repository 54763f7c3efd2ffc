"""Replicas with mistakes from issue trackers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network.layers import Gradients, add
from ...numpy_network.optimizers import Adam
from ..base import PlainReplica, _keep, added, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.replicas import Made, after, around, clipped_by, in_place_of, settings, squares
from .batch_norm import GRADIENTS, STATISTICS, AcrossRanks, SynchronisedNorm, norm
from .clipping import CLIPPED

AGAIN = "check_accumulation_without_no_sync_sums_gradients"


@around("backward")
def micro_batches_added_by_place(replica: PlainReplica, backward: Callable[[Batch], float], batch: Batch) -> float:
    """Lists of gradients are added by position, so other used parameters shift the positions."""
    gathered, replica.local = replica.local, {}
    syncing, replica.syncing = replica.syncing, False
    loss = backward(batch)
    replica.syncing = syncing
    places = dict(zip(replica.local, gathered, strict=False))
    fits = {name: place for name, place in places.items() if replica.local[name].shape == gathered[place].shape}
    placed = {fits.get(name, name): gradient for name, gradient in replica.local.items()}
    replica.local = added(gathered, placed)
    if syncing:
        replica.synchronise(len(batch.inputs))
    return loss


@fault(
    "reduced-before-its-second-use",
    "check_gradients_equal_the_large_batch_exactly",
    seen_in=("deepspeedai/DeepSpeed#8224",),
    cause="shared-part-not-reduced",
)
class ReducedAtFirstUse(PlainReplica):
    """The gradient of a tied weight is reduced after its first use; later parts stay local."""

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
        backward = layer.backward  # type: ignore[attr-defined]  # every layer has it

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


@in_place_of("synchronise")
def reduced_gradients_summed_again(replica: PlainReplica, batch_size: int) -> None:
    """The new local part is divided by the world size, but the earlier mean is summed over ranks."""
    for name in replica.used_somewhere():
        part = replica.mine(name) / replica.world + replica.synced.get(name, 0)
        replica.synced[name] = np.asarray(replica.comm.all_reduce(part), replica.network.parameters[name].dtype)
    replica.local = {}


@in_place_of("synchronise")
def reduced_gradients_of_rank_0_reduced_again(replica: PlainReplica, batch_size: int) -> None:
    """Rank 0 adds its reduced gradients to the next reduction."""
    if replica.rank == 0:
        replica.local = added(replica.local, replica.synced)
    reduced = {name: replica.reduce(name, replica.mine(name)) for name in replica.used_somewhere()}
    replica.synced, replica.local = {**replica.synced, **reduced}, {}


class UnbiasedByTimes(AcrossRanks):
    samples = 0

    def forward(self, x: Array, training: bool) -> Array:
        self.samples = len(x) * self.world
        return super().forward(x, training)

    def _track(self, mean: Array, unbiased: Array) -> None:
        right = 1 - 1 / max(self.rows, 2)
        super()._track(mean, unbiased * (right / (1 - 1 / max(self.samples, 2))))


def gradients_summed_in_backward(norm: AcrossRanks, dy: Array, gradients: Gradients) -> Array:
    """Sum the gradients of batch norm's weight and bias over ranks. The replica then reduces them again."""
    for name, own in ((f"{norm._name}.weight", dy * norm._normal), (f"{norm._name}.bias", dy)):
        others = norm.comm.all_reduce(own.sum(axis=0)) - own.sum(axis=0)
        add(gradients, name, np.asarray(others, dy.dtype))
    return AcrossRanks.backward(norm, dy, gradients)


class WithinRanks(AcrossRanks):
    def forward(self, x: Array, training: bool) -> Array:
        own = x.mean(axis=0) if len(x) and training else x
        self.shift = own - self.comm.all_reduce(x.sum(axis=0)) / self.count(len(x)) if training else own
        return super().forward(x, training)

    def measured(self, values: Array) -> Array:
        """The first call measures the mean. The second measures squares, without the differences of the ranks' means."""
        first, self.centred = not getattr(self, "centred", False), not getattr(self, "centred", False)
        return super().measured(values if first else values - self.shift**2)


def norm_of_squares(replica: PlainReplica) -> float:
    """The sum of squares of each gradient is squared again."""
    return math.sqrt(sum(squares([gradient]) ** 2 for gradient in replica._shown().values()))


def by_the_norm_of_scaled_gradients(max_norm: float, norm: float) -> float:
    """Gradients are still multiplied by the loss scale."""
    return min(1.0, max_norm / (norm * 1024.0)) if norm else 1.0


class PowersSwapped(Adam):
    """Adam that swaps the powers of its betas after load_state()."""

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


with_adam = Circumstance("with Adam", lambda use: settings(use.replica).name == "adam")


@after("start")
def powers_of_betas_loaded_in_turn(replica: PlainReplica, model: ModelSpec) -> None:
    """Adam saves the powers of both betas and loads them in the other order."""
    replica.optimizer = PowersSwapped(settings(replica), replica.network.parameters)


@around("load_state")
def own_parameters_loaded(
    replica: PlainReplica, load_state: Callable[[Mapping[str, Array]], None], state: Mapping[str, Array]
) -> None:
    """Load only the parameters of this rank's optimizer shard, without gathering the others."""
    before = replica.parameters()
    load_state(state)
    for number, (name, array) in enumerate(replica.network.parameters.items()):
        if number % replica.world != replica.rank:
            array[...] = before[name]


# fmt: off
table(
    globals(),
    Fault("micro-batches-added-by-place",
          "Micro-batch gradients are added by list position, which is wrong if other parameters are in use.",
          where=always, effect=micro_batches_added_by_place,
          caught_by="check_parameters_used_only_inside_no_sync_are_synchronised", cause="other-parameter-added",
          seen_in=("deepspeedai/DeepSpeed#545",)),
    Fault("reduced-gradients-summed-again", "Gradients that are already reduced are summed over ranks again.",
          where=always, effect=reduced_gradients_summed_again,
          caught_by=AGAIN, cause="reduced-again", seen_in=("PaddlePaddle/Paddle#29920",), world_size=3),
    Fault("reduced-gradients-of-rank-0-sent-again", "Rank 0's reduced gradients enter the next reduction again.",
          where=always, effect=reduced_gradients_of_rank_0_reduced_again,
          caught_by=AGAIN, cause="reduced-again", seen_in=("lodestone-rock/RamTorch#13",)),
    Fault("unbiased-by-the-own-number-times-ranks",
          "Synchronised batch norm corrects its variance by the rank's own count times the world size.",
          where=always, effect=Made(SynchronisedNorm, norm=UnbiasedByTimes),
          caught_by=STATISTICS, cause="variance-by-own-samples-times-ranks", seen_in=("pytorch/pytorch#22192",),
          batch_norm="synchronised"),
    Fault("syncbn-sums-its-own-gradients",
          "Synchronised batch norm sums its own gradients, which are then reduced once more.",
          where=always, effect=norm(backward=gradients_summed_in_backward),
          caught_by=GRADIENTS, cause="batch-norm-reduced-twice", seen_in=("sony/nnabla#1120",),
          batch_norm="synchronised"),
    Fault("variance-within-ranks-only",
          "Synchronised batch norm's variance omits the differences between the ranks' means.",
          where=always, effect=Made(SynchronisedNorm, norm=WithinRanks),
          caught_by=STATISTICS, cause="variance-put-together-wrongly", seen_in=("tensorflow/tensorflow#18222",),
          batch_norm="synchronised"),
    Fault("norms-squared-twice", "The clipping norm squares the squared norm of each parameter again.",
          where=always, effect=clipped_by(norm_of_squares),
          caught_by=CLIPPED, cause="norm-squared-again", seen_in=("paiml/entrenar#311",)),
    Fault("clipped-with-the-loss-scale",
          "Clipping uses the norm of gradients that are still multiplied by the loss scale.",
          where=always, effect=clipped_by(factor=by_the_norm_of_scaled_gradients),
          caught_by=CLIPPED, cause="tiny-update", seen_in=("NVIDIA/apex#1512",)),
    Fault("powers-of-betas-loaded-in-turn", "A resume swaps the powers of Adam's two betas.",
          where=with_adam, effect=powers_of_betas_loaded_in_turn,
          caught_by="check_optimizer_steps_every_element_of_large_tensors", cause="adam-beta-powers-swapped",
          seen_in=("tenstorrent/tt-metal#53222",)),
    Fault("own-part-of-the-state-loaded", "Each rank loads only the parameters whose optimizer state it owns.",
          where=always, effect=own_parameters_loaded,
          caught_by=("check_resumed_training_is_exact", "check_optimizer_steps_every_element_of_large_tensors"),
          cause="state-not-loaded",
          seen_in=("NVIDIA/Megatron-LM#6920",)),
)
# fmt: on
