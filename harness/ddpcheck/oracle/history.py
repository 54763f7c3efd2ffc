"""The gradients of every rank, backward by backward. They are copied and summed only for a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..seeded_values import Array
from .gradients import Gradient
from .passes import Pass


@dataclass(frozen=True, slots=True)
class Done:
    """One backward. own: its gradients by rank, by name. used: the ranks that used each parameter, bool (ranks,).
    shown: the gradients after it.
    """

    forward: Pass
    own: Mapping[str, Array]
    used: Mapping[str, Array]
    shown: Mapping[str, Gradient]


@dataclass(frozen=True, slots=True)
class History:
    """All backwards of a Job so far. forgotten: the number of backwards before the last zero_grad."""

    backwards: tuple[Done, ...] = ()
    forgotten: int = 0

    def then(self, done: Done) -> History:
        return replace(self, backwards=(*self.backwards, done))

    def zeroed(self) -> History:
        return replace(self, forgotten=len(self.backwards))

    @property
    def counts(self) -> Array:
        """The ranks' batch sizes in the last backward."""
        return self.backwards[-1].forward.shards.counts

    def since_zero_grad(self) -> tuple[Done, ...]:
        return self.backwards[self.forgotten :]

    def knows(self, name: str) -> bool:
        """Whether a backward in the history gave the parameter a gradient."""
        return any(name in done.own for done in (*self.backwards[-1:], *self.since_zero_grad()))

    def own(self, name: str) -> Array | None:
        """Each rank's own gradient, summed over all backwards since zero_grad."""
        parts = [done.own[name] for done in self.since_zero_grad() if name in done.own]
        return sum(parts[1:], parts[0]) if parts else None

    def never_zeroed(self, name: str) -> Array | None:
        """The mean gradient of all backwards, if some of them came before the last zero_grad."""
        parts = [done.own[name] for done in self.backwards if name in done.own]
        if not self.forgotten or not parts:
            return None
        return np.broadcast_to(sum(parts[1:], parts[0]).mean(axis=0), parts[0].shape)

    def of_the_step_before(self, name: str) -> Array | None:
        """The mean gradient of the last backward before the last zero_grad, if there is one."""
        parts = [done.own[name] for done in self.backwards[: self.forgotten] if name in done.own]
        return np.broadcast_to(parts[-1].mean(axis=0), parts[-1].shape) if parts else None
