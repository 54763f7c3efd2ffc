"""Replicas that are wrong after layers are frozen or unfrozen during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.seeded_values import Array

from ..base import Counting, PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.modules import wrapped_by
from ..engine.replicas import Made, around

UNFROZEN = "check_layers_unfrozen_later_are_synchronised"


class BucketsOfTheStart(PlainReplica):
    """The list of reduced parameters is made at construction; one that is unfrozen later stays local."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hooked = frozenset(self.network.learned)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if name in self.hooked else gradient


@fault("frozen-layers-get-zero-gradients", UNFROZEN, cause="zero-for-none", unfreezing=True)
class FrozenGetZeros(PlainReplica):
    """A layer that is frozen later gets zero gradients, so momentum and weight decay move it."""

    frozen: frozenset[str] = frozenset()

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        if trainable:
            super().set_trainable([name for name in layers if name not in self.frozen], trainable)
            self.frozen -= {*layers}
        else:
            self.frozen |= {*layers}

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient)
        return np.zeros_like(mean) if name.rpartition(".")[0] in self.frozen else mean


@around("set_trainable")
def first_layer_switched(
    replica: PlainReplica, set_trainable: Callable[..., None], layers: Sequence[str], trainable: bool
) -> None:
    """Switch only the first of several layers."""
    set_trainable(layers[:1], trainable)


@around("set_trainable")
def layers_by_prefix(
    replica: PlainReplica, set_trainable: Callable[..., None], layers: Sequence[str], trainable: bool
) -> None:
    """`fc1` is a prefix of `fc10`."""
    names = {name.rpartition(".")[0] for name in replica.network.parameters}
    set_trainable([name for name in names if name.startswith(tuple(layers))], trainable)


@fault("unfrozen-twice-hooked-twice", UNFROZEN, cause="wrong-factor", world_size=3)
class HookedTwice(PlainReplica):
    """Unfreezing a layer that already learns reduces its gradients twice."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.hooks = dict.fromkeys(self.network.learned, 1)

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        super().set_trainable(layers, trainable)
        for name in self.network.learned:
            self.hooks[name] = self.hooks.get(name, 0) + (trainable and name.rpartition(".")[0] in layers)
        self.hooks = {name: self.hooks[name] for name in self.network.learned}

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(super().reduce(name, gradient) * self.hooks[name], gradient.dtype)


@fault("layout-kept-after-eight-backwards", UNFROZEN, cause="until-layers-frozen")
class LayoutKept(Counting):
    """Buckets are rebuilt in the first eight backwards only; layers unfrozen later stay local."""

    hooked: frozenset[str] = frozenset()

    def synchronise(self, batch_size: int) -> None:
        if self.backwards < 8:
            self.hooked |= {*self.network.learned}
        super().synchronise(batch_size)

    def reduce(self, name: str, gradient: Array) -> Array:
        return super().reduce(name, gradient) if name in self.hooked else gradient


@fault("frozen-weight-learns-elsewhere", UNFROZEN, cause="zero-for-none")
class LearnsElsewhere(PlainReplica):
    """A shared weight keeps learning through its other layer after its own layer is frozen."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.shared = {layer.uses for layer in model.layers if isinstance(layer, Linear)}

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        super().set_trainable([name for name in layers if trainable or name not in self.shared], trainable)


# fmt: off
table(
    globals(),
    Fault("unfreezing", "Correct: layers may be frozen and unfrozen during training.",
          where=always, effect=Made(PlainReplica),
          unfreezing=True),
    Fault("unfrozen-after-wrap-not-synced",
          "The list of reduced parameters is made at construction; one that is unfrozen later stays local.",
          where=always, effect=Made(BucketsOfTheStart),
          caught_by=UNFROZEN, cause="not-reduced", seen_in=("Lightning-AI/pytorch-lightning#20340", "NVIDIA/apex#46"),
          in_torch=("hooked-at-the-start", wrapped_by("training_scripts:HookedAtTheStart"),
                    ("Lightning-AI/pytorch-lightning#20340",)),
          unfreezing=True),
    Fault("first-of-several-layers", "set_trainable() changes only the first of several named layers.",
          where=always, effect=first_layer_switched,
          caught_by=UNFROZEN, cause="zero-for-none"),
    Fault("layers-by-prefix", 'set_trainable("fc1") also changes fc10.',
          where=always, effect=layers_by_prefix,
          caught_by=UNFROZEN, cause="no-gradients-anywhere"),
)
# fmt: on
