"""What losses and gradients would be if a loss's auxiliary terms counted otherwise than they should, for a diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..model import Activity, Head, Layer, Linear, ModelSpec
from ..values import Array
from .network import evaluate
from .rounding import by_rank
from .shares import Pass

_KINDS = {Linear: "the penalty of weights", Activity: "the activity term", Head: "the auxiliary head's term"}


def terms_of(model: ModelSpec) -> dict[type, str]:
    """What a model's auxiliary terms are called, by the class of their layers."""
    features = {Linear: "penalty", Activity: "activity", Head: "auxiliary_head"}
    return {kind: words for kind, words in _KINDS.items() if features[kind] in model.features()}


def without(model: ModelSpec, kind: type, *, among: Container[str] | None = None) -> ModelSpec:
    """The model whose terms of one kind count nothing, or the penalties of the layers `among` these."""

    def off(layer: Layer) -> Layer:
        if isinstance(layer, Linear):
            chosen = kind is Linear and (among is None or layer.name in among)
            return replace(layer, penalty=0.0) if chosen else layer
        return replace(layer, coefficient=0.0) if isinstance(layer, (Activity, Head)) and type(layer) is kind else layer

    return replace(model, layers=tuple(map(off, model.layers)))


def without_terms(model: ModelSpec) -> ModelSpec:
    """The model whose loss is that of the outputs."""
    for kind in _KINDS:
        model = without(model, kind)
    return model


def losses_lacking_terms(forward: Pass, losses: Array) -> Iterator[tuple[str, Array]]:
    """losses: every rank's own, shape (ranks,)."""
    world, counts = len(losses), forward.shards.counts
    for kind, what in terms_of(forward.model).items():
        rest = evaluate(without(forward.model, kind), forward.learned, forward.fixed, forward.shards).losses
        part = losses - rest
        yield f"{what} is missing in it, whatever gradients have", rest
        yield f"{what} counts once for every rank in it: it is multiplied by the world size", rest + part * world
        yield f"{what} is divided by the world size in it", rest + part / world
        for rank in range(world):
            alone = np.where(np.arange(world) == rank, losses, rest)
            yield f"{what} is missing in it on all ranks but {rank}", alone
        yield (
            f"{what} is a sum over samples in it, or counts once for each, where the rest is a mean",
            rest + part * counts,
        )
        scale = forward.model.loss_scale or 1.0
        yield f"{what} is not multiplied by the loss scale in it", rest + part / scale
        yield (
            f"{what} counts twice in it: in two places, say, or for each of the layers that share a weight",
            rest + part * 2,
        )
        if kind is Linear:
            yield f"{what} counts in it without samples, too", rest + _everywhere(part)
            frozen = {name.rpartition(".")[0] for name in forward.fixed}
            learned = without(forward.model, kind, among=frozen)
            lacking = evaluate(learned, forward.learned, forward.fixed, forward.shards).losses
            yield f"{what} is in it only where they learn: that of frozen layers is missing", lacking
        if forward.shards.weights is not None:
            plain = _part(forward, kind, weights=None)
            yield f"the samples' weights are ignored in {what}", rest + plain.losses


def _everywhere(part: Array) -> Array:
    """As if all ranks had what those have that have any."""
    there = [one for one in part if np.any(one)]
    return np.stack([one if np.any(one) or not there else there[0] for one in part])


@dataclass(frozen=True, slots=True)
class _Part:
    losses: Array
    gradients: dict[str, Array]


def _part(forward: Pass, kind: type, *, weights: Array | None) -> _Part:
    """What terms of a kind add to losses and gradients, with these weights of samples."""
    shards = replace(forward.shards, weights=weights)
    full = evaluate(forward.model, forward.learned, forward.fixed, shards)
    rest = evaluate(without(forward.model, kind), forward.learned, forward.fixed, shards)
    own = {name: gradient - rest.gradients[name] for name, gradient in full.gradients.items()}
    return _Part(full.losses - rest.losses, own)


@dataclass(frozen=True, slots=True)
class Terms:
    """Those of a gradient that is made of several passes. weigh: how much each rank counts in a mean, which adds up to 1.
    earlier: the first pass of all and the last before these, if there are some.
    """

    name: str
    passes: Sequence[Pass]
    weigh: Array
    inside: bool
    earlier: Sequence[Pass] = ()

    def gone_wrong(self, own: Array, expected: Array, rank: int) -> Iterator[tuple[str, Array]]:
        """own: each rank's gradient, all terms included; expected: what should be on this rank."""
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
            for sentence, instead in (
                *self._by_ranks(what, part, mean, rank),
                *self._by_passes(kind, what, each, mean),
            ):
                yield sentence, rest + instead

    def doubt(self, own: Array) -> str:
        """What a factor of the world size may come from, in a gradient that is a term's alone."""
        for kind, what in terms_of(self.passes[0].model).items():
            each = self._each(kind)
            if np.allclose(self._mean(sum(each[1:], each[0])), self._mean(own), rtol=1e-9):
                return f"; or {what}, of which alone it is made, counts once for every rank"
        return ""

    def _each(self, kind: type) -> list[Array]:
        """What terms of a kind add on each rank, pass by pass."""
        return [self._of(forward, kind, forward.shards.weights) for forward in self.passes]

    def _of(self, forward: Pass, kind: type, weights: Array | None) -> Array:
        return _part(forward, kind, weights=weights).gradients[self.name]

    def _mean(self, array: Array) -> Array:
        return np.tensordot(self.weigh, array, 1)

    def _local(self, what: str, each: list[Array], expected: Array, rank: int) -> Iterator[tuple[str, Array]]:
        """Inside no_sync."""
        part, last, world = sum(each[1:], each[0])[rank], each[-1][rank], len(self.weigh)
        yield f"{what} is left out inside no_sync", expected - part
        yield f"{what} is left out of the last micro-batch, inside no_sync", expected - last
        yield f"{what} counts once for every rank: it is multiplied by the world size", expected + (world - 1) * part
        yield f"{what} is divided by the world size, before anything is reduced", expected - part + part / world

    def _by_ranks(
        self, what: str, part: Array, mean: Callable[[Array], Array], rank: int
    ) -> Iterator[tuple[str, Array]]:
        """What a term adds, if ranks count otherwise in it."""
        world, zero = len(part), np.zeros_like(part[0])
        where = "it is computed apart from what backward goes through, or left out where gradients are gathered"
        yield f"{what} is missing, though the loss has it: {where}", zero
        yield (
            f"{what} counts once for every rank: it is summed over the ranks, where the rest is averaged",
            mean(part) * world,
        )
        alike = all(np.allclose(one, part[0]) for one in part)
        if alike and world > 1:
            yield f"{what} is divided by the world size once more, or only one of the ranks has it", mean(part) / world
        for other in range(world * (not alike)):
            alone = np.where(by_rank(np.arange(world) == other, part), part, 0.0)
            yield f"only rank {other} has {what} in its gradient", mean(alone)
        if not alike:
            yield f"{what} is this rank's own: it is added after the reduction, so that ranks drift apart", part[rank]
            yield f"{what} is divided by the world size once more", mean(part) / world
        yield f"{what} counts twice: in two places, or for each of the layers that share a weight", mean(part) * 2
        share = by_rank(self.weigh, part) * world
        yield f"how much a rank counts, by its samples or their weights, counts twice in {what}", mean(part * share)
        yield f"ranks count equally in {what}, and not as in the rest of the loss", part.mean(axis=0)

    def _by_passes(
        self, kind: type, what: str, each: list[Array], mean: Callable[[Array], Array]
    ) -> Iterator[tuple[str, Array]]:
        """What a term adds, if micro-batches or samples count otherwise in it."""
        part = sum(each[1:], each[0])
        if len(each) > 1:
            yield (
                f"{what} is that of the last micro-batch only: it is left out inside no_sync, or added once for a window",
                mean(each[-1]),
            )
            yield f"{what} is divided by the number of micro-batches", mean(part) / len(each)
        shape = -1, *(1,) * (part.ndim - 1)
        summed = [one * forward.shards.counts.reshape(shape) for one, forward in zip(each, self.passes, strict=True)]
        words = f"{what} is a sum over samples, or counts once for each, where the rest of the loss is a mean"
        yield words, mean(sum(summed[1:], summed[0]))
        scale = self.passes[0].model.loss_scale or 1.0
        yield f"{what} is not multiplied by the loss scale", mean(part) / scale
        for forward in self.earlier:
            old = self._of(forward, kind, forward.shards.weights)
            yield (
                f"{what} is that of an earlier backward: of weights before a step, or of its batch",
                mean(old) * len(each),
            )
        if kind is Linear:
            yield f"{what} counts on ranks without samples, or without weight, too", mean(_everywhere(part))
        if any(forward.shards.weights is not None for forward in self.passes):
            plain = [self._of(forward, kind, None) for forward in self.passes]
            yield f"the samples' weights are ignored in {what}", mean(sum(plain[1:], plain[0]))
