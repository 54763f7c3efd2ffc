"""Replicas that keep NaN after zero_grad()."""

from __future__ import annotations

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import in_place_of

GONE = "check_zero_grad_clears_nan_gradients"


@in_place_of("zero_gradients")
def gradients_times_zero(replica: PlainReplica) -> None:
    replica.scale(0.0)


@fault("residual-keeps-nan", GONE, cause="nan-kept-after-zero-grad")
class ResidualKeepsNan(PlainReplica):
    """Error feedback adds the last rounding error to the next gradient, so a NaN stays forever."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.residuals: dict[str, Array] = {}

    def reduce(self, name: str, gradient: Array) -> Array:
        whole = gradient + self.residuals.get(name, 0)
        sent = np.array(whole, gradient.dtype)
        self.residuals[name] = whole - sent
        return super().reduce(name, sent)


@fault("difference-to-the-last", GONE, cause="nan-kept-after-zero-grad")
class DifferenceToTheLast(PlainReplica):
    """Only the change since the last reduction is sent and added to its result, so a NaN stays forever."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.last: dict[str, Array] = {}

    def reduce(self, name: str, gradient: Array) -> Array:
        last = self.last.get(name, np.zeros_like(gradient))
        self.last[name] = np.asarray(last + super().reduce(name, gradient - last), gradient.dtype)
        return self.last[name]


# fmt: off
table(
    globals(),
    Fault("gradients-times-zero", "zero_gradients() multiplies gradients by 0, which keeps NaN.",
          where=always, effect=gradients_times_zero,
          caught_by=GONE, cause="nan-kept-after-zero-grad"),
)
# fmt: on
