"""The gradients of every rank, backward by backward. They are copied and summed only for a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..causes import Cause, gradients
from ..diagnosis import Evidence
from ..seeded_values import Array
from .bounded_values import by_rank
from .clipping import Clip
from .gradients import Gradient
from .hypotheses.auxiliary_terms import Terms, terms_of
from .hypotheses.contributions import Contributions
from .hypotheses.passes import Pass
from .hypotheses.sample_weights import SampleWeights

_IN_TURN = 4
"""The most buffers used in turn, one of which may not be cleared."""


@dataclass(frozen=True, slots=True)
class Done:
    """One backward. own: its gradients by rank, by name. used: on which ranks, bool (ranks,), for each parameter. shown:
    the gradients after it.
    """

    forward: Pass
    own: Mapping[str, Array]
    used: Mapping[str, Array]
    shown: Mapping[str, Gradient]


@dataclass(frozen=True, slots=True)
class History:
    """All backwards of a Job so far. forgotten: how many of them came before the last zero_grad."""

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
        """Whether the history has a backward for a parameter's gradient."""
        return any(name in done.own for done in (*self.backwards[-1:], *self.since_zero_grad()))

    def own(self, name: str) -> Array | None:
        """Each rank's own gradient, of all backwards since zero_grad."""
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

    def windows_gone_wrong(self, name: str) -> Iterator[tuple[Cause, Array]]:
        """The mean gradient of several micro-batches if one of them were lost."""
        parts = [done.own[name] for done in self.since_zero_grad() if name in done.own]
        if len(parts) > 1:
            last = np.broadcast_to(parts[-1].mean(axis=0), parts[-1].shape)
            yield gradients.LAST_MICRO_BATCH_ONLY(), last
            yield (
                gradients.LAST_MICRO_BATCH_MISSING(),
                np.broadcast_to(sum(parts[1:-1], parts[0]).mean(axis=0), last.shape),
            )


@dataclass(frozen=True, slots=True)
class Accumulated:
    """The backward passes behind a parameter's gradient. zeros: by name, of the shape of every gradient. shared: whether several
    layers use the parameter. clipped: how it was, since. inside, weighted: as Contributions'. by_weight: whether ranks are
    promised to count by their samples' weights.
    """

    name: str
    history: History
    zeros: Mapping[str, Array]
    dtype: str
    shared: bool
    inside: bool
    weighted: bool
    clipped: Clip | None = None
    by_weight: bool = False

    def evidence(self, expected: Array, rank: int) -> Evidence:
        if self.clipped is not None and self.name in self.clipped.before:
            known = tuple((cause, array[rank]) for cause, array in self.clipped.gone_wrong(self.name))
            return Evidence(len(self.history.counts), alternatives=known)
        return self.contributions().evidence(expected, rank)

    def contributions(self) -> Contributions:
        name, done = self.name, self.history.since_zero_grad()
        parts = [one.own[name] for one in done if name in one.own]
        if not parts:  # zero_grad came after
            zero = self.zeros[name]
            return Contributions(zero, zero, zero, self._shown(1), 0, self.history.counts, self.inside, self.weighted)
        others = {other: self.zeros[other] if (own := self.history.own(other)) is None else own for other in self.zeros}
        shares = partial(done[0].forward.shares, name) if self.shared and len(done) == 1 else None
        passed = partial(done[0].forward.gone_wrong, name, parts[0]) if len(done) == 1 else None
        return Contributions(
            others[name], parts[0], parts[-1], self._shown(2), len(done), self.history.counts, self.inside, self.weighted,
            others, shares, self._before_the_last(), passed, self._weighing(done), self._terms(done), self._long_before(),
        )  # fmt: skip

    def _terms(self, done: Sequence[Done]) -> Terms | None:
        """With the ranks' weights in the last backward."""
        passes = [one.forward for one in done if self.name in one.own]
        if not terms_of(passes[0].model):
            return None
        weights, counts = passes[-1].shards.weights, self.history.counts
        weigh = counts * float(self.weighted) if weights is None else weights.sum(axis=1) * float(self.by_weight)
        weigh = weigh / weigh.sum() if weigh.any() else np.full(len(counts), 1 / len(counts))
        before = [one.forward for one in self.history.backwards[: -len(done)] if self.name in one.own]
        return Terms(self.name, passes, weigh, self.inside, [*before[:1], *before[-1:]])

    def _weighing(self, done: Sequence[Done]) -> SampleWeights | None:
        """By the weights of the last backward."""
        weights = done[-1].forward.shards.weights
        if weights is None or self.inside:
            return None

        def ignored() -> Array:
            parts = [one.forward.weighted(None).gradients[self.name] for one in done if self.name in one.own]
            return np.asarray(sum(parts[1:], parts[0]))

        shards = [one.forward.shards for one in self.history.backwards[:-1]]
        earlier = [one.weights for one in shards if one.weights is not None]
        return SampleWeights(weights, earlier, self.history.counts, self.by_weight, ignored)

    def _shown(self, back: int) -> Array | None:
        """After the last backward (1) or the one before (2)."""
        backwards = self.history.backwards
        if len(backwards) < back or self.name not in backwards[-back].own:
            return None
        shown = backwards[-back].shown[self.name].sum(self.dtype)
        return None if shown is None else shown.exact

    def _long_before(self) -> Sequence[Array]:
        """Each rank's own of the backwards before the last but one, the latest first."""
        long_before = self.history.backwards[-3 : -3 - _IN_TURN : -1]
        return [done.own[self.name] if self.name in done.own else self.zeros[self.name] for done in long_before]

    def _before_the_last(self) -> Array | None:
        """Each rank's own, of the last backward but one or more in which the rank used the parameter."""
        found: Array | None = None
        for done in self.history.backwards[:-1]:
            if self.name in done.own:
                own = done.own[self.name]
                used = by_rank(done.used[self.name], own)
                found = own if found is None else np.where(used, own, found)
        return found
