"""Auxiliary terms of a loss that count otherwise than the rest of it: for each rank, on one of them, in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ...numpy_network.terms import Head, Term
from ..base import PlainReplica, added, fault
from .sample_weights import Weighing

ACTIVITY = "check_activity_term_is_averaged_over_all_samples"
HEAD = "check_auxiliary_head_trains_like_other_layers"
TermOf = Callable[[Array, Array], float]


class Counting(PlainReplica):
    """Correct as long as often() says 1."""

    def often(self, batch: Batch) -> float:
        """How often the terms count in this backward."""
        return 1.0

    def backward(self, batch: Batch) -> float:
        with self.counted(self.often(batch)):
            return super().backward(batch)

    @contextmanager
    def counted(self, often: float) -> Iterator[None]:
        own = [term.coefficient for term in self.network.terms]
        for term in self.network.terms:
            term.coefficient *= often
        try:
            yield
        finally:
            for term, coefficient in zip(self.network.terms, own, strict=True):
                term.coefficient = coefficient

    def alone(self, batch: Batch) -> tuple[float, dict[str, Array]]:
        """The rank's own loss and gradients; nothing is gathered or changed."""
        kept = {name: buffer.copy() for name, buffer in self.network.buffers.items()}
        found: dict[str, Array | None] = {}
        loss = self.network.backward(batch.inputs, batch.targets, batch.branches, found.__setitem__)
        for name, buffer in kept.items():
            self.network.buffers[name][...] = buffer
        return loss, {name: gradient for name, gradient in found.items() if gradient is not None}


class RightlyTold(Counting):
    """The loss is told as it should be, whatever gradients have."""

    def backward(self, batch: Batch) -> float:
        loss, _ = self.alone(batch)
        super().backward(batch)
        return loss


class ForEveryRank(RightlyTold):
    """The terms are multiplied by the world size, as what is averaged afterwards; but they are not summed before."""

    def often(self, batch: Batch) -> float:
        return self.world


class OnRankZero(Counting):
    """Only rank 0 adds the terms, so that they would count once in a sum."""

    def often(self, batch: Batch) -> float:
        return float(self.rank == 0)


activity_for_every_rank = fault(
    "activity-for-every-rank", ACTIVITY, cause="term-counted-per-rank", model_features=FEATURES
)(ForEveryRank)
head_for_every_rank = fault(
    "auxiliary-head-for-every-rank", HEAD, cause="term-counted-per-rank", model_features=FEATURES
)(ForEveryRank)


@fault("activity-on-rank-0", ACTIVITY, cause="term-on-one-rank", model_features=FEATURES)
class ActivityOnRankZero(RightlyTold):
    """Only rank 0's activations have gradients by the activity term."""

    def often(self, batch: Batch) -> float:
        return float(self.rank == 0)


class AfterTheReduction(Counting):
    """The term's gradients are added to those that are reduced already: the ranks' own, in which they differ."""

    def backward(self, batch: Batch) -> float:
        if not self.syncing:
            return super().backward(batch)
        loss, full = self.alone(batch)
        with self.counted(0.0):
            _, rest = self.alone(batch)
            super().backward(batch)
        self.synced = added(self.synced, {name: np.asarray(full[name] - rest[name]) for name in full})
        return loss


activity_after_the_reduction = fault(
    "activity-after-the-reduction", ACTIVITY, cause="term-not-reduced", model_features=FEATURES
)(AfterTheReduction)


@fault(
    "activity-in-the-last-micro-batch",
    ACTIVITY,
    cause="term-of-last-micro-batch",
    model_features=FEATURES,
)
class InTheLastMicroBatch(Counting):
    """The term goes into the gradients when those are reduced: of all micro-batches it has the last one's activations only.

    whole: what is shown of those before that.
    """

    whole: Mapping[str, Array] = MappingProxyType({})

    def backward(self, batch: Batch) -> float:
        if self.syncing:
            self.whole = {}
            return super().backward(batch)
        loss, full = self.alone(batch)
        self.whole = added(self.whole, full)
        with self.counted(0.0):
            PlainReplica.backward(self, batch)
        return loss

    def zero_grad(self) -> None:
        super().zero_grad()
        self.whole = {}

    def _shown(self) -> dict[str, Array]:
        return added(self.synced, self.whole or self.local)


@fault(
    "activity-of-masked-samples",
    ACTIVITY,
    world_size=1,
    cause="term-ignores-weights",
    model_features=FEATURES,
    sample_weights="equal_ranks",
)
class OfMaskedSamples(Weighing):
    """The activity term is a mean over all samples, those that a mask takes out included."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            term.of = self._unweighted(term)  # type: ignore[method-assign, assignment]  # this one's only

    def _unweighted(self, term: Term) -> TermOf:
        of = term.of
        return lambda targets, each: of(targets, np.full_like(each, each.sum() / (len(each) or 1)))


@fault("auxiliary-head-not-reduced", HEAD, cause="not-reduced", model_features=FEATURES)
class HeadNotReduced(PlainReplica):
    """Only parameters that the outputs depend on are reduced."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return gradient if name.startswith("head.") else super().reduce(name, gradient)


@fault("auxiliary-head-not-broadcast", HEAD, cause="construction-leaves-other-value", model_features=FEATURES)
class HeadNotBroadcast(PlainReplica):
    """Every rank keeps the auxiliary head that it was built with."""

    def start(self, model: ModelSpec) -> None:
        for name, array in self.network.tensors.items():
            if not name.startswith("head."):
                array[...] = self.comm.broadcast(array)


@fault("auxiliary-head-detached", HEAD, world_size=1, cause="term-missing", model_features=FEATURES)
class HeadDetached(PlainReplica):
    """The auxiliary head learns; what lies before it does not hear of its loss."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            if isinstance(term, Head):
                term.backward = self._apart(term)  # type: ignore[method-assign, assignment]  # this one's only

    def _apart(self, head: Head) -> object:
        backward = head.backward

        def goes_on_without(dy: Array, gradients: object) -> Array:
            kept = dy.copy()
            backward(dy, gradients)  # type: ignore[arg-type]  # as they come
            return kept

        return goes_on_without


@fault("auxiliary-head-not-saved", HEAD, world_size=1, cause="state-not-loaded", model_features=FEATURES)
class HeadNotSaved(PlainReplica):
    """A checkpoint has what it takes to predict."""

    def state(self) -> dict[str, Array]:
        return {name: array for name, array in super().state().items() if not name.startswith("head.")}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({**self.parameters(), **state})


@fault(
    "auxiliary-head-not-clipped",
    HEAD,
    world_size=1,
    cause="norm-leaves-out",
    model_features=FEATURES,
)
class HeadNotClipped(PlainReplica):
    """The norm of gradients is that of the parameters which outputs depend on."""

    def clip(self, max_norm: float) -> float:
        kept = {name: gradient for name, gradient in self.synced.items() if name.startswith("head.")}
        self.synced = {name: gradient for name, gradient in self.synced.items() if name not in kept}
        norm = super().clip(max_norm)
        self.synced = {**self.synced, **kept}
        return norm
