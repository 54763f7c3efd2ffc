"""Replicas that clip by a wrong norm, or that use the right norm wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ...numpy_network.layers import Linear
from ..base import PlainReplica, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.replicas import ReplicaEffect, clipped_by, norm_of_all, squares, usual_factor
from .clipping import CLIPPED


def combined(norms: Callable[[Iterable[float]], float]) -> ReplicaEffect:
    """Compute the norm from the norms of the parameters: norms(list)."""

    def measured(replica: PlainReplica) -> float:
        return norms([math.sqrt(squares([gradient])) for gradient in replica._shown().values()])

    return clipped_by(measured)


def root_of_squares_with_the_first_twice(norms: Iterable[float]) -> float:
    """The first parameter is in two groups of the optimizer."""
    first, *rest = norms
    return math.hypot(first, first, *rest)


def of_elements(number: Callable[[Array], Any]) -> Callable[[PlainReplica], float]:
    """Compute the norm from all elements: number(elements)."""

    def measured(replica: PlainReplica) -> float:
        return float(number(np.concatenate([gradient.ravel() for gradient in replica._shown().values()])))

    return measured


def norm_over_layers(replica: PlainReplica) -> float:
    """Collect gradients layer by layer."""
    layers = [layer.name for layer in replica.network._layers if isinstance(layer, Linear)]
    each = {name: squares([gradient]) for name, gradient in replica._shown().items()}
    return math.sqrt(sum(max(1, layers.count(name.rpartition(".")[0])) * square for name, square in each.items()))


def largest_element(elements: Array) -> float:
    return float(abs(elements).max(initial=0.0))


def sum_of_absolute_values(elements: Array) -> float:
    return float(abs(elements).sum())


def norm_of_every_second_element(elements: Array) -> float:
    return float(np.linalg.norm(elements[::2]))


def square_of_the_norm(replica: PlainReplica) -> float:
    return norm_of_all(replica) ** 2


def norm_with_the_loss_scale(replica: PlainReplica) -> float:
    """The norm before gradients are unscaled."""
    return 1024 * norm_of_all(replica)


def factor_of_squares(max_norm: float, norm: float) -> float:
    return usual_factor(max_norm, norm) ** 2


def always_to_the_limit(max_norm: float, norm: float) -> float:
    """Scale also if the norm is smaller than the limit."""
    return max_norm / norm if norm and math.isfinite(max_norm) else 1.0


def limit_itself(max_norm: float, norm: float) -> float:
    """The infinite limit divided by the norm is infinite."""
    return max_norm / norm if norm else 1.0


to_infinity = Circumstance("for an infinite limit", lambda use: math.isinf(use.argument))


def by_the_largest_element(use: Any) -> float:
    norm = norm_of_all(use.replica)
    use.replica.scale(usual_factor(use.argument, of_elements(largest_element)(use.replica)))
    return norm


def norm_of_what_is_left(use: Any) -> float:
    use.rightly()
    return norm_of_all(use.replica)


@fault("norm-of-the-largest-rank", CLIPPED, cause="norm-largest-of-ranks")
class NormOfTheLargestRank(PlainReplica):
    """The clipping norm is the largest of the ranks' local norms."""

    largest = 0.0

    def synchronise(self, batch_size: int) -> None:
        own = np.array([math.sqrt(squares(self.local.values()))])
        self.largest = float(self.comm.all_gather(own).max())
        super().synchronise(batch_size)

    def clip(self, max_norm: float) -> float:
        self.scale(usual_factor(max_norm, self.largest))
        return self.largest


# fmt: off
table(
    globals(),
    Fault("norm-of-the-largest-parameter", "The clipping norm is the largest norm of a single parameter.",
          where=always, effect=combined(max),
          caught_by=CLIPPED, cause="norm-of-one-parameter"),
    Fault("norms-of-parameters-added-up", "The clipping norm is the sum of the parameters' norms.",
          where=always, effect=combined(sum),
          caught_by=CLIPPED, cause="norm-is-sum-of-norms"),
    Fault("first-parameter-twice-in-the-norm", "The clipping norm counts the first parameter twice.",
          where=always, effect=combined(root_of_squares_with_the_first_twice),
          caught_by=CLIPPED, cause="norm-counts-twice"),
    Fault("tied-parameters-in-the-norm-of-each-layer",
          "The clipping norm counts a tied parameter once for each layer that uses it.",
          where=always, effect=clipped_by(norm_over_layers),
          caught_by=CLIPPED, cause="norm-counts-uses"),
    Fault("norm-is-the-largest-element", "The clipping norm is the largest absolute element.",
          where=always, effect=clipped_by(of_elements(largest_element)),
          caught_by=CLIPPED, cause="norm-is-largest"),
    Fault("norm-of-absolute-values", "The clipping norm is the sum of absolute values.",
          where=always, effect=clipped_by(of_elements(sum_of_absolute_values)),
          caught_by=CLIPPED, cause="norm-is-sum"),
    Fault("norm-of-half-the-elements", "The clipping norm covers every second element only.",
          where=always, effect=clipped_by(of_elements(norm_of_every_second_element)),
          caught_by=CLIPPED, cause="norm-too-small"),
    Fault("norm-without-the-root", "The clipping norm is the sum of squares, without the root.",
          where=always, effect=clipped_by(square_of_the_norm),
          caught_by=CLIPPED, cause="norm-square"),
    Fault("norm-with-the-loss-scale", "The clipping norm is that of gradients multiplied by the loss scale.",
          where=always, effect=clipped_by(norm_with_the_loss_scale),
          caught_by=CLIPPED, cause="norm-of-scaled-gradients"),
    Fault("norm-after-clipping", "clip() returns the norm after clipping.",
          where=always, effect=ReplicaEffect("clip", norm_of_what_is_left),
          caught_by=CLIPPED, cause="norm-after-clip"),
    Fault("clipped-by-the-largest-element", "Clipping scales by the largest element, but returns the right norm.",
          where=always,
          effect=ReplicaEffect("clip", by_the_largest_element),
          caught_by=CLIPPED, cause="clipped-by-largest"),
    Fault("clipped-by-squares", "Clipping scales by the square of the right factor.",
          where=always, effect=clipped_by(factor=factor_of_squares),
          caught_by=CLIPPED, cause="clipped-twice"),
    Fault("clipped-up-to-the-limit", "Clipping scales gradients up to the limit if their norm is smaller.",
          where=always, effect=clipped_by(factor=always_to_the_limit),
          caught_by=CLIPPED, cause="scaled-up-to-limit"),
    Fault("clipped-up-to-infinity", "Clipping with an infinite limit makes gradients infinite.",
          where=to_infinity, effect=clipped_by(factor=limit_itself),
          caught_by=CLIPPED, cause="infinite-clip-scales"),
)
# fmt: on
