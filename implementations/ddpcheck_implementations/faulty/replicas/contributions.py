"""Replicas with a wrong local gradient, a wrong reduction or a wrong loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network.layers import Gradients, Relu
from ..base import PlainReplica, fault
from ..engine.circumstances import always, on_rank
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, giving, instead, sending
from ..engine.replicas import ReplicaEffect, after, before, in_place_of, settings, without_gradient
from .compressed import as_bfloat16
from .gradient import EXACT, REAL, TIGHT
from .local_gradients import LOCAL, NONFINITE, UNEVEN
from .optimizing import UNUSED

LATER = "check_gradients_stay_exact_after_many_backwards"
RESUMED = "check_resumed_training_matches_one_process"


@instead
def own_of_rank_1(gradient: Gradient) -> Array:
    """Broadcast instead of all-reduce."""
    return np.asarray(gradient.replica.comm.broadcast(gradient.array, 1))


@instead
def product(gradient: Gradient) -> Array:
    """All-reduce with the code of another reduction."""
    return np.asarray(gradient.gathered().prod(axis=0))


@sending
def own_of_the_backward_before(gradient: Gradient) -> Array:
    """Send the buffer before the gradient is written to it."""
    kept: dict[str, Array] = gradient.replica.__dict__.setdefault("kept", {})
    late = kept.get(gradient.name, gradient.array)
    kept[gradient.name] = gradient.array.copy()
    return late


@giving
def all_nan_if_one_is_not_finite(gradient: Gradient, mean: Array) -> Array:
    """Like a division and multiplication by the largest element."""
    return mean if np.isfinite(mean).all() else np.full_like(mean, np.nan)


@before("synchronise")
def mean_of_ranks_with_samples(replica: PlainReplica, batch_size: int) -> None:
    """Do not count ranks without samples."""
    there = float(replica.comm.all_reduce(np.array([float(batch_size > 0)]))[0])
    factor = replica.world / max(1.0, there)
    replica.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in replica.local.items()}


@fault("loss-divided-and-gradients-summed", LOCAL, cause="loss-divided-by-world-size")
class DividedAndSummed(PlainReplica):
    """The loss is divided by the world size and gradients are summed, so local gradients are too small."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        plain = self.network._loss

        def smaller(outputs: Array, targets: Array) -> tuple[float, Array]:
            loss, dy = plain(outputs, targets)
            return loss, np.asarray(dy / self.world, dy.dtype)

        self.network._loss = smaller

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(gradient))


class PassesAtZero(Relu):
    """ReLU with derivative 1 at 0."""

    def forward(self, x: Array, training: bool) -> Array:
        self._x = x
        return super().forward(x, training)

    def backward(self, dy: Array, gradients: Gradients) -> Array:
        np.putmask(dy, self._x < 0, 0)
        return dy


@after("start")
def relu_passes_at_zero(replica: PlainReplica, model: ModelSpec) -> None:
    for layer in replica.network._layers:
        if isinstance(layer, Relu):
            layer.__class__ = PassesAtZero


@after("start")
def owner_of_a_shared_weight_stops_learning(replica: PlainReplica, model: ModelSpec) -> None:
    """The owner's part of the gradient is overwritten; the parts of layers that share the weight remain."""
    shared = {layer.uses for layer in model.layers if isinstance(layer, Linear)}
    for layer in replica.network._layers:
        owns = any(name.rpartition(".")[0] in shared for name in layer.finishes)
        layer.learns = layer.learns and not owns


@in_place_of("gradients")
def reduced_gradients_only(replica: PlainReplica) -> dict[str, Array | None]:
    """Leave out gradients accumulated inside no_sync, which are in another buffer."""
    return {
        name: np.array(replica.synced[name]) if name in replica.synced else None for name in replica.network.learned
    }


@fault("checkpoint-in-memory-by-reference", RESUMED, cause="state-is-no-copy")
class ByReference(PlainReplica):
    """The saved state is stored by reference, so it changes with further training."""

    kept: ClassVar[dict[int, dict[str, Array]]] = {}

    def state(self) -> dict[str, Array]:
        self.kept[self.rank] = self.network.tensors
        return super().state()

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({**state, **self.kept.get(self.rank, {})})


@before("step")
def noise_without_gradient(replica: PlainReplica) -> None:
    """Step with uninitialised memory."""
    noise = np.random.default_rng(0)
    for name in without_gradient(replica):
        parameter = replica.network.parameters[name]
        parameter -= (settings(replica).lr * noise.standard_normal(parameter.shape)).astype(parameter.dtype)


def told(number: Callable[[float, PlainReplica, Batch], float]) -> ReplicaEffect:
    """Change the loss that backward() returns: number(loss, replica, batch)."""
    return ReplicaEffect(
        "backward",
        lambda use: float(number(float(use.rightly()), use.replica, use.argument)),
    )


def sum_of_the_ranks_losses(loss: float, replica: PlainReplica, batch: Batch) -> float:
    return float(replica.comm.all_reduce(np.array([loss]))[0])


def mean_of_the_ranks_losses(loss: float, replica: PlainReplica, batch: Batch) -> float:
    return sum_of_the_ranks_losses(loss, replica, batch) / replica.world


def sum_of_the_samples_losses(loss: float, replica: PlainReplica, batch: Batch) -> float:
    return loss * len(batch.inputs)


def loss_in_bfloat16(loss: float, replica: PlainReplica, batch: Batch) -> float:
    """Autocast rounds a loss like this."""
    return float(as_bfloat16(np.array(loss)))


# fmt: off
table(
    globals(),
    Fault("broadcast-in-place-of-all-reduce", "Every rank gets rank 1's gradient instead of the mean.",
          where=always, effect=own_of_rank_1,
          caught_by=EXACT, cause="other-ranks-value", world_size=3),
    Fault("product-in-place-of-mean", "Gradients are multiplied over ranks instead of averaged.",
          where=always, effect=product,
          caught_by=EXACT, cause="product-not-mean"),
    Fault("rank-1-sends-a-backward-late", "Rank 1 sends the gradient of the previous backward.",
          where=on_rank(1), effect=own_of_the_backward_before,
          caught_by=EXACT, cause="rank-sends-old"),
    Fault("mean-over-ranks-with-samples",
          "The sum is divided by the number of ranks with samples, not by the world size.",
          where=always, effect=mean_of_ranks_with_samples,
          caught_by=UNEVEN, cause="ranks-without-samples-left-out", world_size=3),
    Fault("relu-passes-at-zero", "The derivative of ReLU at 0 is 1 instead of 0.",
          where=always, effect=relu_passes_at_zero,
          caught_by=EXACT, cause="relu-at-zero", world_size=1),
    Fault("part-of-the-owner-overwritten", "The gradient of a shared weight lacks the part of the layer that owns it.",
          where=always, effect=owner_of_a_shared_weight_stops_learning,
          caught_by=EXACT, cause="shared-part-missing", world_size=1),
    Fault("local-gradients-in-another-buffer",
          "gradients() shows reduced gradients only, not those accumulated inside no_sync.",
          where=always, effect=reduced_gradients_only,
          caught_by=(TIGHT, LOCAL), cause="gradient-gathered-elsewhere"),
    Fault("one-nan-makes-all-nan", "One NaN or infinity makes the whole gradient NaN.",
          where=always, effect=all_nan_if_one_is_not_finite,
          caught_by=NONFINITE, cause="nonfinite-from-nowhere"),
    Fault("noise-where-there-is-no-gradient", "Parameters without a gradient are stepped with uninitialised memory.",
          where=always, effect=noise_without_gradient,
          caught_by=UNUSED, cause="moved-though-unused"),
    Fault("loss-of-all-ranks-told", "backward() returns the mean of the ranks' losses.",
          where=always, effect=told(mean_of_the_ranks_losses),
          caught_by=REAL, cause="loss-averaged"),
    Fault("sum-of-losses-told", "backward() returns the sum of the ranks' losses.",
          where=always, effect=told(sum_of_the_ranks_losses),
          caught_by=EXACT, cause="loss-summed", world_size=3),
    Fault("loss-summed-over-the-batch", "backward() returns the sum of the samples' losses instead of their mean.",
          where=always, effect=told(sum_of_the_samples_losses),
          caught_by=REAL, cause="loss-summed-over-samples", world_size=1),
    Fault("loss-in-bfloat16", "backward() returns the loss rounded to bfloat16.",
          where=always, effect=told(loss_in_bfloat16),
          caught_by=REAL, cause="nearly-right", world_size=1),
)
# fmt: on
