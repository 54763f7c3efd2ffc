"""Replicas with gradients that are wrong before the reduction, or that bypass it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec, Scale
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ...numpy_network.layers import Delay, Gradients
from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, of_layer, own_value, sending
from ..engine.replicas import after, around, before, given, takes_ids

EXACT = "check_gradients_equal_the_large_batch_exactly"
TIGHT = "check_gradients_are_the_mean_of_local_gradients"
NONFINITE = "check_nonfinite_gradients_reach_every_rank"
WINDOW = "check_accumulation_counts_every_micro_batch_once"
OPTIONS = "check_make_replica_rejects_unknown_options"
WAITING = "check_delay_layers_wait_and_keep_gradients_exact"
LOCAL = "check_gradients_inside_no_sync_are_local"


@after("start")
def first_users_of_a_shared_weight_stop_learning(replica: PlainReplica, model: ModelSpec) -> None:
    """Like a shared weight whose gradient is assigned by the last layer, not added."""
    for layer in replica.network._layers:
        layer.learns = layer.learns and bool(layer.finishes)


@after("start")
def loss_times_world_size(replica: PlainReplica, model: ModelSpec) -> None:
    plain = replica.network._loss

    def larger(outputs: Array, targets: Array) -> tuple[float, Array]:
        loss, dy = plain(outputs, targets)
        return loss, np.asarray(dy * replica.world, dy.dtype)

    replica.network._loss = larger


@sending
def nan_sent_as_zero(gradient: Gradient) -> Array:
    return np.nan_to_num(gradient.array)


@after("start")
def no_derivative_of_delays(replica: PlainReplica, model: ModelSpec) -> None:
    for layer in replica.network._layers:
        if isinstance(layer, Delay):
            layer.backward = _zero_input_gradient  # type: ignore[method-assign]  # of this network only


@around("make_network")
def without_delays(
    replica: PlainReplica, make: Callable[..., Network], model: ModelSpec, initial: Mapping[str, Array]
) -> Network:
    layers = tuple(layer for layer in model.layers if not isinstance(layer, spec.Delay))
    return make(replace(model, layers=layers), initial)


@fault(
    "unknown-options-ignored",
    OPTIONS,
    world_size=1,
    cause="unknown-option-accepted",
    refuses_options=True,
)
class OptionsIgnored(PlainReplica):
    """make_replica() ignores unknown options."""

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> None:
        """Accept all options."""


def _zero_input_gradient(dy: Array, gradients: Gradients) -> Array:
    return np.zeros_like(dy)


@fault("long-window-starts-over", WINDOW, cause="last-micro-batch-only")
class LongWindow(PlainReplica):
    """Micro-batches are counted in three bits, so the ninth restarts the window."""

    count = 0

    def backward(self, batch: Batch) -> float:
        self.count += 1
        if self.count % 8 == 1:
            self.local = {}
        return super().backward(batch)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.count = 0


@given("backward")
def whole_pieces_of_32_samples(replica: PlainReplica, batch: Batch) -> Batch:
    """Drop the remainder."""
    whole = max(len(batch.inputs) // 32 * 32, min(len(batch.inputs), 32))
    return replace(batch, inputs=batch.inputs[:whole], targets=batch.targets[:whole])


UNEVEN = "check_uneven_batches_count_equally_per_rank"


@fault("mean-over-no-samples", UNEVEN, cause="mean-of-no-samples")
class MeanOverNothing(PlainReplica):
    """Cross entropy divides by 0 on a rank without samples."""

    def __init__(self, model: ModelSpec, *args: Any) -> None:
        self.divides = model.loss == "cross_entropy"
        super().__init__(model, *args)

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        return math.nan if self.divides and not len(batch.inputs) else loss


@before("backward")
def largest_id_looked_for(replica: PlainReplica, batch: Batch) -> None:
    """Raises on a rank without samples."""
    batch.inputs.max()


@after("backward")
def divided_where_nothing_is_reduced(replica: PlainReplica, batch: Batch) -> None:
    """Like a gradient hook that divides before the reduction, and also runs inside no_sync()."""
    if not replica.syncing:
        replica.local = {name: np.asarray(each / replica.world, each.dtype) for name, each in replica.local.items()}


@fault("no-samples-no-forward", UNEVEN, seen_in=("pytorch/pytorch#38174",), cause="no-samples-not-handled")
class NoForward(PlainReplica):
    """A rank without samples skips the forward pass, and with it the broadcast of buffers."""

    def backward(self, batch: Batch) -> float:
        self.goes_forward = len(batch.inputs) > 0
        return super().backward(batch)

    def before_forward(self) -> None:
        if self.goes_forward:
            super().before_forward()


# fmt: off
table(
    globals(),
    Fault("autograd-grad-bypasses-hooks", "The gradients of scale layers bypass the hooks and stay local.",
          where=of_layer(Scale), effect=own_value,
          caught_by=(TIGHT, EXACT), cause="not-reduced", seen_in=("pytorch/pytorch#63740", "horovod/horovod#141")),
    Fault("nan-replaced-by-zero", "NaN and infinities in a gradient are replaced before they are sent.",
          where=always, effect=nan_sent_as_zero, caught_by=NONFINITE, cause="nonfinite-replaced"),
    Fault("tied-grad-assigned-not-added", "The last use of a shared weight overwrites the gradients of the other uses.",
          where=always, effect=first_users_of_a_shared_weight_stop_learning,
          caught_by=EXACT, cause="shared-part-replaces", seen_in=("NVIDIA/TransformerEngine#3552",), world_size=1),
    Fault("loss-times-world", "The gradient is that of the loss times the world size.",
          where=always, effect=loss_times_world_size,
          caught_by=(LOCAL, EXACT), cause="loss-multiplied-by-world-size", seen_in=("neuralmagic/sparseml#135",)),
    Fault("hooks-divide-inside-no-sync",
          "Each backward inside no_sync divides all gradients accumulated so far by the world size.",
          where=always, effect=divided_where_nothing_is_reduced,
          caught_by=LOCAL, cause="divided-in-every-backward"),
    Fault("gradient-ends-at-a-layer-without-parameters", "No gradient passes through a layer without parameters.",
          where=always, effect=no_derivative_of_delays,
          caught_by=WAITING, cause="never-written", world_size=1),
    Fault("layers-that-do-not-wait", "Delay layers do not wait.",
          where=always, effect=without_delays,
          caught_by=WAITING, cause="layer-does-not-wait", world_size=1),
    Fault("remainder-of-a-split-batch", "A batch is split into pieces of 32 samples, and the remainder is dropped.",
          where=always, effect=whole_pieces_of_32_samples,
          caught_by="check_gradients_equal_the_large_batch_within_rounding",
          cause="wrong-forward-values"),
    Fault("no-ids-no-embedding", "An embedding raises an error on a rank without samples.",
          where=takes_ids, effect=largest_id_looked_for,
          caught_by=UNEVEN, cause="no-samples-not-handled"),
)
# fmt: on
