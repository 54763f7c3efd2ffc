"""Auxiliary loss terms with a wrong weight, or on wrong ranks or micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network.terms import Head, Term
from ..base import PlainReplica, added, fault
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.gradients import own_value
from ..engine.replicas import ReplicaEffect, around, in_place_of, not_broadcast
from .sample_weights import Weighing

ACTIVITY = "check_activity_term_is_averaged_over_all_samples"
HEAD = "check_auxiliary_head_trains_like_other_layers"
TermOf = Callable[[Array, Array], float]


class Counting(PlainReplica):
    """Multiplies the terms by often(batch). Correct while often() returns 1."""

    def often(self, batch: Batch) -> float:
        """The factor of the terms in this backward."""
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
        """The rank's own loss and gradients, without a change to the replica."""
        kept = {name: buffer.copy() for name, buffer in self.network.buffers.items()}
        found: dict[str, Array | None] = {}
        loss = self.network.backward(batch.inputs, batch.targets, batch.branches, found.__setitem__)
        for name, buffer in kept.items():
            self.network.buffers[name][...] = buffer
        return loss, {name: gradient for name, gradient in found.items() if gradient is not None}


class RightlyTold(Counting):
    """Returns the right loss, whatever the factor of the gradients."""

    def backward(self, batch: Batch) -> float:
        loss, _ = self.alone(batch)
        super().backward(batch)
        return loss


def counted(often: Callable[[Any, Batch], float], base: type[Counting] = RightlyTold) -> ReplicaEffect:
    """Multiply the terms by often(replica, batch)."""
    return in_place_of("often")(often).of(base)


def for_every_rank(replica: PlainReplica, batch: Batch) -> float:
    """Right only for a term that is later divided by the world size."""
    return replica.world


def on_rank_0(replica: PlainReplica, batch: Batch) -> float:
    """Right only if gradients are summed over ranks."""
    return float(replica.rank == 0)


class AfterTheReduction(Counting):
    """The gradients of an activity term are added after the reduction, so they differ between ranks."""

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
    """The gradients of an activity term come from the last micro-batch only.

    whole: the gradients shown before the last micro-batch.
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


@fault("activity-averaged-over-micro-batches", ACTIVITY, cause="term-divided-by-micro-batches", model_features=FEATURES)
class OverMicroBatches(Counting):
    """An activity term is averaged over micro-batches, while their losses are summed."""

    whole: Mapping[str, Array] = MappingProxyType({})
    taken: Mapping[str, Array] = MappingProxyType({})
    count = 0

    def backward(self, batch: Batch) -> float:
        _, full = self.alone(batch)
        with self.counted(0.0):
            _, rest = self.alone(batch)
        self.whole = added(self.whole, {name: np.asarray(full[name] - rest[name]) for name in full})
        self.count += 1
        return super().backward(batch)

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        too_much = {name: self.reduce(name, part * (1 - 1 / self.count)) for name, part in self.whole.items()}
        self.synced = added(self.synced, added(self.taken, {name: -part for name, part in too_much.items()}))
        self.taken = too_much

    def zero_grad(self) -> None:
        super().zero_grad()
        self.whole, self.taken, self.count = {}, {}, 0


@fault(
    "activity-of-masked-samples",
    ACTIVITY,
    world_size=1,
    cause="term-ignores-weights",
    model_features=FEATURES,
    sample_weights="equal_ranks",
)
class OfMaskedSamples(Weighing):
    """An activity term is averaged over all samples, including masked ones."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            term.of = self._unweighted(term)  # type: ignore[method-assign, assignment]  # of this term only

    def _unweighted(self, term: Term) -> TermOf:
        of = term.of
        return lambda targets, each: of(targets, np.full_like(each, each.sum() / (len(each) or 1)))


in_head = Circumstance("in the auxiliary head", lambda tensor: tensor.name.startswith("head."))


@fault("auxiliary-head-detached", HEAD, world_size=1, cause="term-missing", model_features=FEATURES)
class HeadDetached(PlainReplica):
    """The loss of the auxiliary head does not reach the layers before the head."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            if isinstance(term, Head):
                term.backward = self._apart(term)  # type: ignore[method-assign, assignment]  # of this term only

    def _apart(self, head: Head) -> object:
        backward = head.backward

        def goes_on_without(dy: Array, gradients: object) -> Array:
            kept = dy.copy()
            backward(dy, gradients)  # type: ignore[arg-type]  # as they come
            return kept

        return goes_on_without


@fault("auxiliary-head-not-saved", HEAD, world_size=1, cause="state-not-loaded", model_features=FEATURES)
class HeadNotSaved(PlainReplica):
    """A checkpoint lacks the auxiliary head."""

    def state(self) -> dict[str, Array]:
        return {name: array for name, array in super().state().items() if not name.startswith("head.")}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({**self.parameters(), **state})


@around("clip")
def clipped_without_the_head(replica: PlainReplica, clip: Callable[[float], float], max_norm: float) -> float:
    kept = {name: gradient for name, gradient in replica.synced.items() if name.startswith("head.")}
    replica.synced = {name: gradient for name, gradient in replica.synced.items() if name not in kept}
    norm = clip(max_norm)
    replica.synced = {**replica.synced, **kept}
    return norm


# fmt: off
table(
    globals(),
    Fault("activity-for-every-rank", "The activity term is multiplied by the world size.",
          where=always, effect=counted(for_every_rank),
          caught_by=ACTIVITY, cause="term-counted-per-rank", model_features=FEATURES),
    Fault("auxiliary-head-for-every-rank", "The auxiliary head's loss is multiplied by the world size.",
          where=always, effect=counted(for_every_rank),
          caught_by=HEAD, cause="term-counted-per-rank", model_features=FEATURES),
    Fault("activity-on-rank-0", "Only rank 0 adds the activity term.",
          where=always, effect=counted(on_rank_0),
          caught_by=ACTIVITY, cause="term-on-one-rank", model_features=FEATURES),
    Fault("auxiliary-head-not-reduced", "The auxiliary head's gradients stay local.",
          where=in_head, effect=own_value,
          caught_by=HEAD, cause="not-reduced", model_features=FEATURES),
    Fault("auxiliary-head-not-broadcast", "Each rank keeps its own initial values of the auxiliary head.",
          where=in_head, effect=not_broadcast,
          caught_by=HEAD, cause="construction-leaves-other-value", model_features=FEATURES),
    Fault("auxiliary-head-not-clipped", "Clipping leaves out the auxiliary head.",
          where=always, effect=clipped_without_the_head,
          caught_by=HEAD, cause="norm-leaves-out", world_size=1, model_features=FEATURES),
)
# fmt: on
