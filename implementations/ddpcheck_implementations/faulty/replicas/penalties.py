"""Weight penalties with a wrong weight, or missing in the loss or in gradients."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract import ReplicaSync
from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network.layers import Gradients, add
from ...numpy_network.terms import Penalised, Term
from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import Made, after, before, in_place_of
from .auxiliary_terms import ACTIVITY, Counting, RightlyTold, TermOf, counted, for_every_rank, on_rank_0

PENALTY = "check_weight_penalty_counts_once"


def once_per_rank(replica: PlainReplica, batch: Batch) -> float:
    """The mean over ranks divides the penalty once more."""
    return 1 / replica.world


def outside_no_sync(replica: PlainReplica, batch: Batch) -> float:
    return float(replica.syncing)


@in_place_of("backward")
def loss_without_penalty(replica: Counting, batch: Batch) -> float:
    """Only gradients have the penalty."""
    with replica.counted(0.0):
        loss, _ = replica.alone(batch)
    Counting.backward(replica, batch)
    return loss


def never(replica: PlainReplica, batch: Batch) -> float:
    """The penalty enters the loss as a number, without gradient."""
    return 0.0


def once_per_sample(replica: PlainReplica, batch: Batch) -> float:
    return len(batch.inputs)


@fault(
    "penalty-not-scaled-with-the-loss",
    PENALTY,
    world_size=1,
    cause="term-not-loss-scaled",
    model_features=FEATURES,
)
class NotScaled(RightlyTold):
    """The loss is scaled before the penalty is added, so the penalty counts too little."""

    loss_scale = 1.0

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.loss_scale = model.loss_scale

    def often(self, batch: Batch) -> float:
        return 1 / self.loss_scale


def twice(replica: PlainReplica, batch: Batch) -> float:
    """Added in the loss and again after the reduction. At world size 2, a factor of 2 could be one per rank."""
    return 2.0


@after("start")
def shared_weights_penalised_twice(replica: PlainReplica, model: ModelSpec) -> None:
    """Penalties are added for each layer, including layers that share a weight."""
    shared = {layer.uses for layer in model.layers if isinstance(layer, spec.Linear)}
    for term in replica.network.terms:
        if isinstance(term, Penalised) and term.name in shared:
            term.coefficient *= 2


@before("backward")
def penalty_of_what_learns(replica: PlainReplica, batch: Batch) -> None:
    for term in replica.network.terms:
        if isinstance(term, Penalised) and not term.learns:
            term.coefficient = 0.0


@fault("penalty-without-samples", PENALTY, cause="term-without-samples", model_features=FEATURES)
class WithoutSamples(Counting):
    """A rank without samples adds the penalty to its loss and gradient."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            term.of = self._never_none(term, model.loss_scale)  # type: ignore[method-assign, assignment]  # of this term only

    def _never_none(self, term: Term, scale: float) -> TermOf:
        of = term.of
        return lambda targets, each: of(targets, each if len(each) else np.full(1, scale, each.dtype))


class Weighed(RightlyTold):
    """Correct: a rank is weighted by its share of all samples."""

    def share(self, samples: int) -> float:
        return float(samples * self.world / self.comm.all_reduce(np.array([float(samples)]))[0])

    def synchronise(self, batch_size: int) -> None:
        factor = self.share(batch_size)
        self.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in self.local.items()}
        super().synchronise(batch_size)


def share_of_all_samples(replica: Weighed, batch: Batch) -> float:
    """The term is multiplied by the rank's share; later the gradients are multiplied again."""
    return replica.share(len(batch.inputs))


def undone_share(replica: Weighed, batch: Batch) -> float:
    """Cancel the rank's share, so ranks have equal weight in the term."""
    return 1 / (replica.share(len(batch.inputs)) or 1.0)


def in_the_first_micro_batch(replica: PlainReplica, batch: Batch) -> float:
    """Meant to add the term once per window."""
    return float(not replica._shown())


@fault(
    "penalty-of-earlier-weights",
    PENALTY,
    world_size=1,
    cause="term-stale",
    model_features=FEATURES,
)
class OfEarlierWeights(PlainReplica):
    """The penalty's gradient uses the weights of the first forward pass."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            if isinstance(term, Penalised):
                term.backward = self._of_first(term)  # type: ignore[method-assign, assignment]  # of this term only

    def _of_first(self, term: Penalised) -> object:
        backward, first = term.backward, term.weight.copy()

        def of_first(dy: Array, gradients: Gradients) -> Array:
            dx = backward(dy, gradients)
            name = f"{term.name}.weight"
            if term.learns:
                add(gradients, name, (first - term.weight) * term.weight.dtype.type(term._often))
            return dx

        return of_first


# fmt: off
table(
    globals(),
    Fault("broadcasts-where-ranks-keep-their-own", "Buffers are broadcast, although each rank is promised its own.",
          where=always, effect=Made(PlainReplica),
          caught_by=PENALTY, cause="statistics-of-rank", model_features=FEATURES, replica_sync=ReplicaSync.NOTHING),
    Fault("penalty-for-every-rank", "The penalty is multiplied by the world size.",
          where=always, effect=counted(for_every_rank),
          caught_by=PENALTY, cause="term-counted-per-rank", model_features=FEATURES),
    Fault("penalty-on-rank-0", "Only rank 0 adds the penalty.",
          where=always, effect=counted(on_rank_0, Counting),
          caught_by=PENALTY, cause="term-on-one-rank", model_features=FEATURES),
    Fault("penalty-divided-once-more", "The penalty is divided by the world size.",
          where=always, effect=counted(once_per_rank),
          caught_by=PENALTY, cause="term-divided-by-world-size", model_features=FEATURES),
    Fault("penalty-left-out-in-no-sync", "Micro-batches inside no_sync lack the penalty.",
          where=always, effect=counted(outside_no_sync),
          caught_by=PENALTY, cause="term-missing-in-no-sync", world_size=1, model_features=FEATURES),
    Fault("penalty-not-in-the-loss", "The loss lacks the penalty, but gradients have it.",
          where=always, effect=loss_without_penalty.of(Counting),
          caught_by=PENALTY, cause="term-missing", world_size=1, model_features=FEATURES),
    Fault("penalty-detached", "The gradients lack the penalty, but the loss has it.",
          where=always, effect=counted(never),
          caught_by=PENALTY, cause="term-missing", world_size=1, model_features=FEATURES),
    Fault("penalty-for-every-sample", "The penalty is multiplied by the batch size.",
          where=always, effect=counted(once_per_sample, Counting),
          caught_by=PENALTY, cause="term-summed-over-samples", world_size=1, model_features=FEATURES),
    Fault("penalty-weighed-twice", "The penalty is weighted by the rank's share of samples twice.",
          where=always, effect=counted(share_of_all_samples, Weighed),
          caught_by=PENALTY, cause="term-weighted-twice", model_features=FEATURES, uneven_batches="weighted"),
    Fault("activity-of-ranks-of-equal-weight",
          "The activity term counts ranks equally, although ranks are weighted by samples.",
          where=always, effect=counted(undone_share, Weighed),
          caught_by=ACTIVITY, cause="term-weighted-equally", model_features=FEATURES, uneven_batches="weighted"),
    Fault("penalty-in-the-first-micro-batch", "Only the first micro-batch of a window has the penalty.",
          where=always, effect=counted(in_the_first_micro_batch),
          caught_by=PENALTY, cause="term-missing-in-last-micro-batch", world_size=1, model_features=FEATURES),
    Fault("penalty-twice", "The penalty counts twice.",
          where=always, effect=counted(twice),
          caught_by=PENALTY, cause="term-counted-twice", world_size=3, model_features=FEATURES),
    Fault("penalty-for-every-use", "The penalty of a shared weight counts once for each use.",
          where=always, effect=shared_weights_penalised_twice,
          caught_by=PENALTY, cause="term-counted-twice", world_size=3, model_features=FEATURES),
    Fault("penalty-of-what-learns", "The loss lacks the penalty of frozen weights.",
          where=always, effect=penalty_of_what_learns,
          caught_by=PENALTY, cause="term-of-frozen-missing", world_size=1, model_features=FEATURES),
)
# fmt: on
