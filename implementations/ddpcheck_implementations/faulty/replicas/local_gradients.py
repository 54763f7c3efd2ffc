"""Gradients that are wrong before any reduction, or go past it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec, Scale
from ddpcheck.values import Array

from ...numpy_network import Network
from ...numpy_network.layers import Delay, Gradients
from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, of_layer, own_value, sending

EXACT = "check_gradients_equal_the_large_batch_exactly"
TIGHT = "check_gradients_are_the_mean_of_local_gradients"
NONFINITE = "check_nonfinite_gradients_reach_every_rank"
WINDOW = "check_accumulation_counts_every_micro_batch_once"
OPTIONS = "check_make_replica_rejects_unknown_options"
WAITING = "check_delay_layers_wait_and_keep_gradients_exact"
LOCAL = "check_gradients_inside_no_sync_are_local"


@fault(
    "tied-grad-assigned-not-added",
    EXACT,
    world_size=1,
    seen_in=("NVIDIA/TransformerEngine#3552",),
    cause="shared-part-replaces",
)
class SharedOverwritten(PlainReplica):
    """What the last layer of several that share a weight adds to its gradient takes the place of all before."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for layer in self.network._layers:
            layer.learns = layer.learns and bool(layer.finishes)


@fault(
    "loss-times-world",
    LOCAL,
    EXACT,
    seen_in=("neuralmagic/sparseml#135",),
    cause="loss-multiplied-by-world-size",
)
class LossTimesWorld(PlainReplica):
    """The loss is multiplied by the world size, to make up for a division that the mean already is."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        plain = self.network._loss

        def larger(outputs: Array, targets: Array) -> tuple[float, Array]:
            loss, dy = plain(outputs, targets)
            return loss, np.asarray(dy * self.world, dy.dtype)

        self.network._loss = larger


@sending
def nan_sent_as_zero(gradient: Gradient) -> Array:
    return np.nan_to_num(gradient.array)


@fault("gradient-ends-at-a-layer-without-parameters", WAITING, world_size=1, cause="never-written")
class EndsAtDelays(PlainReplica):
    """A function of our own, which only waits and passes its input on, has no derivative: nothing goes back through it."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for layer in self.network._layers:
            if isinstance(layer, Delay):
                layer.backward = _nothing_goes_back  # type: ignore[method-assign]  # of this network only


@fault("layers-that-do-not-wait", WAITING, world_size=1, cause="layer-does-not-wait")
class NeverWaits(PlainReplica):
    """A layer that only takes time is left out: it has no part in the result."""

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        layers = tuple(layer for layer in model.layers if not isinstance(layer, spec.Delay))
        return super().make_network(replace(model, layers=layers), initial)


@fault(
    "unknown-options-ignored",
    OPTIONS,
    world_size=1,
    cause="unknown-option-accepted",
    refuses_options=True,
)
class OptionsIgnored(PlainReplica):
    """Options are read by name, and those of other names by nobody."""

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> None:
        """Whatever they are."""


def _nothing_goes_back(dy: Array, gradients: Gradients) -> Array:
    return np.zeros_like(dy)


@fault("long-window-starts-over", WINDOW, cause="last-micro-batch-only")
class LongWindow(PlainReplica):
    """The counter of micro-batches has three bits: the ninth one of a window starts over."""

    count = 0

    def backward(self, batch: Batch) -> float:
        self.count += 1
        if self.count % 8 == 1:
            self.local = {}
        return super().backward(batch)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.count = 0


@fault(
    "remainder-of-a-split-batch",
    "check_gradients_equal_the_large_batch_within_rounding",
    cause="wrong-forward-values",
)
class SplitBatch(PlainReplica):
    """A large batch is computed in pieces of 32 samples, and what is left over is dropped."""

    def backward(self, batch: Batch) -> float:
        whole = max(len(batch.inputs) // 32 * 32, min(len(batch.inputs), 32))
        return super().backward(replace(batch, inputs=batch.inputs[:whole], targets=batch.targets[:whole]))


UNEVEN = "check_uneven_batches_count_equally_per_rank"


@fault("mean-over-no-samples", UNEVEN, cause="mean-of-no-samples")
class MeanOverNothing(PlainReplica):
    """Cross entropy divides by the number of samples, which a rank may have none of."""

    def __init__(self, model: ModelSpec, *args: Any) -> None:
        self.divides = model.loss == "cross_entropy"
        super().__init__(model, *args)

    def backward(self, batch: Batch) -> float:
        loss = super().backward(batch)
        return math.nan if self.divides and not len(batch.inputs) else loss


@fault("no-ids-no-embedding", UNEVEN, cause="no-samples-not-handled")
class NoIds(PlainReplica):
    """An embedding looks for the largest id first, and so raises where there are none."""

    def backward(self, batch: Batch) -> float:
        if batch.inputs.dtype.kind == "i":
            batch.inputs.max()
        return super().backward(batch)


@fault("no-samples-no-forward", UNEVEN, seen_in=("pytorch/pytorch#38174",), cause="no-samples-not-handled")
class NoForward(PlainReplica):
    """A rank without samples has nothing to go forward with, and leaves out the broadcast of buffers that begins it."""

    def backward(self, batch: Batch) -> float:
        self.goes_forward = len(batch.inputs) > 0
        return super().backward(batch)

    def before_forward(self) -> None:
        if self.goes_forward:
            super().before_forward()


# fmt: off
table(
    globals(),
    Fault("autograd-grad-bypasses-hooks", where=of_layer(Scale), effect=own_value,
          caught_by=(TIGHT, EXACT), cause="not-reduced", seen_in=("pytorch/pytorch#63740", "horovod/horovod#141")),
    Fault("nan-replaced-by-zero", where=always, effect=nan_sent_as_zero, caught_by=NONFINITE, cause="nonfinite-replaced"),
)
# fmt: on
