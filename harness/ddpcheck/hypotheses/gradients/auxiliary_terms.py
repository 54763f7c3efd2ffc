"""Hypotheses about wrongly counted auxiliary loss terms, with the losses and gradients that each predicts."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...causes import Cause
from ...causes import auxiliary_terms as causes
from ...models.spec import Activity, Head, Layer, Linear, ModelSpec
from ...oracle.auxiliary_terms import KINDS_OF_TERMS, terms_of
from ...oracle.bounded_values import by_rank
from ...oracle.network import evaluate
from ...oracle.passes import Pass
from ...seeded_values import Array


def without(model: ModelSpec, kind: type, *, among: Container[str] | None = None) -> ModelSpec:
    """The model without the effect of one kind of terms, or of the penalties of the layers `among`."""

    def off(layer: Layer) -> Layer:
        if isinstance(layer, Linear):
            chosen = kind is Linear and (among is None or layer.name in among)
            return replace(layer, penalty=0.0) if chosen else layer
        return replace(layer, coefficient=0.0) if isinstance(layer, (Activity, Head)) and type(layer) is kind else layer

    return replace(model, layers=tuple(map(off, model.layers)))


def without_terms(model: ModelSpec) -> ModelSpec:
    """The model without auxiliary terms."""
    for kind in KINDS_OF_TERMS:
        model = without(model, kind)
    return model


def losses_lacking_terms(forward: Pass, losses: Array) -> Iterator[tuple[Cause, Array]]:
    """Losses without some terms. losses: every rank's own, shape (ranks,)."""
    world, counts = len(losses), forward.shards.counts
    for kind, what in terms_of(forward.model).items():
        rest = evaluate(without(forward.model, kind), forward.learned, forward.fixed, forward.shards).losses
        part = losses - rest
        yield causes.TERM_MISSING(term=what, where="loss"), rest
        yield causes.TERM_PER_RANK(term=what, where="loss"), rest + part * world
        yield causes.TERM_DIVIDED(term=what, where="loss"), rest + part / world
        for rank in range(world):
            alone = np.where(np.arange(world) == rank, losses, rest)
            yield causes.TERM_ON_ONE_RANK(term=what, rank=rank, where="loss"), alone
        yield causes.TERM_SUMMED(term=what, where="loss"), rest + part * counts
        scale = forward.model.loss_scale or 1.0
        yield causes.TERM_NOT_LOSS_SCALED(term=what, where="loss"), rest + part / scale
        yield causes.TERM_TWICE(term=what, where="loss"), rest + part * 2
        if kind is Linear:
            yield causes.TERM_WITHOUT_SAMPLES(term=what, where="loss"), rest + _everywhere(part)
            frozen = {name.rpartition(".")[0] for name in forward.fixed}
            learned = without(forward.model, kind, among=frozen)
            lacking = evaluate(learned, forward.learned, forward.fixed, forward.shards).losses
            yield causes.TERM_OF_FROZEN_MISSING(term=what), lacking
        if forward.shards.weights is not None:
            plain = _part(forward, kind, weights=None)
            yield causes.TERM_IGNORES_WEIGHTS(term=what, where="loss"), rest + plain.losses


def _everywhere(part: Array) -> Array:
    """The values if all ranks had those of the ranks that have any."""
    there = [one for one in part if np.any(one)]
    return np.stack([one if np.any(one) or not there else there[0] for one in part])


@dataclass(frozen=True, slots=True)
class _Part:
    losses: Array
    gradients: dict[str, Array]


def _part(forward: Pass, kind: type, *, weights: Array | None) -> _Part:
    """The contribution of one kind of terms to losses and gradients, with these sample weights."""
    shards = replace(forward.shards, weights=weights)
    full = evaluate(forward.model, forward.learned, forward.fixed, shards)
    rest = evaluate(without(forward.model, kind), forward.learned, forward.fixed, shards)
    own = {name: gradient - rest.gradients[name] for name, gradient in full.gradients.items()}
    return _Part(full.losses - rest.losses, own)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a gradient made of several passes. weigh: the weight of each rank in a mean; the weights add up to
    1. earlier: the first pass of all and the last before these, if there are some.
    """

    name: str
    passes: Sequence[Pass]
    weigh: Array
    inside: bool
    earlier: Sequence[Pass] = ()

    def gone_wrong(self, own: Array, expected: Array, rank: int) -> Iterator[tuple[Cause, Array]]:
        """Gradients with wrong terms. own: each rank's gradient, with all terms; expected: the right gradient on this
        rank.
        """
        for kind, what in terms_of(self.passes[0].model).items():
            each = self._each(kind)
            part = sum(each[1:], each[0])
            if not part.any():
                continue
            if self.inside:
                yield from self._local(what, each, expected, rank)
                continue
            combined = self._mean(own)
            summed = np.allclose(expected, combined * len(own), rtol=1e-9, atol=0.0)
            mean: Callable[[Array], Array] = (lambda a: self._mean(a) * len(own)) if summed else self._mean
            rest = expected - mean(part)
            for cause, instead in (
                *self._by_ranks(what, part, mean, rank),
                *self._by_passes(kind, what, each, mean),
            ):
                yield cause, rest + instead

    def doubt(self, own: Array) -> tuple[Cause, ...]:
        """Causes of a factor of the world size in a gradient that comes from a term alone."""
        for kind, what in terms_of(self.passes[0].model).items():
            each = self._each(kind)
            if np.allclose(self._mean(sum(each[1:], each[0])), self._mean(own), rtol=1e-9):
                return (causes.TERM_PER_RANK(term=what, where="gradient"),)
        return ()

    def _each(self, kind: type) -> list[Array]:
        """The contribution of one kind of terms on each rank, pass by pass."""
        return [self._of(forward, kind, forward.shards.weights) for forward in self.passes]

    def _of(self, forward: Pass, kind: type, weights: Array | None) -> Array:
        return _part(forward, kind, weights=weights).gradients[self.name]

    def _mean(self, array: Array) -> Array:
        return np.tensordot(self.weigh, array, 1)

    def _local(self, what: str, each: list[Array], expected: Array, rank: int) -> Iterator[tuple[Cause, Array]]:
        """Hypotheses inside no_sync."""
        part, last, world = sum(each[1:], each[0])[rank], each[-1][rank], len(self.weigh)
        yield causes.TERM_MISSING_IN_NO_SYNC(term=what), expected - part
        yield causes.TERM_MISSING_IN_LAST_MICRO_BATCH(term=what), expected - last
        yield causes.TERM_PER_RANK(term=what, where="gradient"), expected + (world - 1) * part
        yield causes.TERM_DIVIDED(term=what, where="gradient"), expected - part + part / world

    def _by_ranks(
        self, what: str, part: Array, mean: Callable[[Array], Array], rank: int
    ) -> Iterator[tuple[Cause, Array]]:
        """The term's gradient if ranks were weighted otherwise."""
        world, zero = len(part), np.zeros_like(part[0])
        yield causes.TERM_MISSING(term=what, where="gradient"), zero
        yield causes.TERM_PER_RANK(term=what, where="gradient"), mean(part) * world
        alike = all(np.allclose(one, part[0]) for one in part)
        if alike and world > 1:
            yield causes.TERM_DIVIDED(term=what, where="gradient"), mean(part) / world
        for other in range(world * (not alike)):
            alone = np.where(by_rank(np.arange(world) == other, part), part, 0.0)
            yield causes.TERM_ON_ONE_RANK(term=what, rank=other, where="gradient"), mean(alone)
        if not alike:
            yield causes.TERM_NOT_REDUCED(term=what), part[rank]
            yield causes.TERM_DIVIDED(term=what, where="gradient"), mean(part) / world
        yield causes.TERM_TWICE(term=what, where="gradient"), mean(part) * 2
        share = by_rank(self.weigh, part) * world
        yield causes.TERM_WEIGHTED_TWICE(term=what), mean(part * share)
        yield causes.TERM_WEIGHTED_EQUALLY(term=what), part.mean(axis=0)

    def _by_passes(
        self, kind: type, what: str, each: list[Array], mean: Callable[[Array], Array]
    ) -> Iterator[tuple[Cause, Array]]:
        """The term's gradient if micro-batches or samples were weighted otherwise."""
        part = sum(each[1:], each[0])
        if len(each) > 1:
            yield causes.TERM_OF_LAST_MICRO_BATCH(term=what), mean(each[-1])
            yield causes.TERM_DIVIDED_BY_MICRO_BATCHES(term=what), mean(part) / len(each)
        shape = -1, *(1,) * (part.ndim - 1)
        summed = [one * forward.shards.counts.reshape(shape) for one, forward in zip(each, self.passes, strict=True)]
        yield causes.TERM_SUMMED(term=what, where="gradient"), mean(sum(summed[1:], summed[0]))
        scale = self.passes[0].model.loss_scale or 1.0
        yield causes.TERM_NOT_LOSS_SCALED(term=what, where="gradient"), mean(part) / scale
        for forward in self.earlier:
            old = self._of(forward, kind, forward.shards.weights)
            yield causes.TERM_STALE(term=what), mean(old) * len(each)
        if kind is Linear:
            yield causes.TERM_WITHOUT_SAMPLES(term=what, where="gradient"), mean(_everywhere(part))
        if any(forward.shards.weights is not None for forward in self.passes):
            plain = [self._of(forward, kind, None) for forward in self.passes]
            yield causes.TERM_IGNORES_WEIGHTS(term=what, where="gradient"), mean(sum(plain[1:], plain[0]))
