"""The contributions of all ranks to a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...causes import Cause
from ...seeded_values import Array
from .auxiliary_terms import Terms
from .sample_weights import SampleWeights


@dataclass(frozen=True, slots=True)
class Contributions:
    """The contributions to a gradient, for a diagnosis; arrays have the ranks as first axis.

    own: each rank's own, all since zero_grad. first, last: each rank's own of the first and the last backward. before:
    the gradient after the previous backward. backwards: the number since zero_grad. counts: the ranks' batch sizes.
    inside: whether the last one was inside no_sync. weighted: whether batch sizes are promised to count. others: as
    own, of every gradient. shares: the parts of the layers that share the parameter, if some do. earlier: each rank's
    own when it last had one, before the last backward. long_before: each rank's own of the backwards before the last
    but one, the latest first. passed: own, if a layer had computed something else. weighing: the samples' weights, if
    any. terms: the loss's auxiliary terms, if any. initial: own, if each rank had kept its own initial values, by kind
    of values; None after a step. value: the parameter in the last backward.
    """

    own: Array
    first: Array
    last: Array
    before: Array | None
    backwards: int
    counts: Array
    inside: bool
    weighted: bool
    others: Mapping[str, Array] = field(default_factory=dict)
    shares: Callable[[], Mapping[str, Array]] | None = None
    earlier: Array | None = None
    passed: Callable[[], Iterator[tuple[Cause, Array]]] | None = None
    weighing: SampleWeights | None = None
    terms: Terms | None = None
    long_before: Sequence[Array] = ()
    initial: Callable[[], Iterator[tuple[str, Array]]] | None = None
    value: Array | None = None

    @property
    def unused(self) -> Array:
        """The ranks whose own gradient is zero."""
        return np.flatnonzero(~self.own.reshape(len(self.own), -1).any(axis=1))


def named(places: Array) -> tuple[int, ...]:
    """Ranks in the form of causes' parameters."""
    return tuple(map(int, places))
