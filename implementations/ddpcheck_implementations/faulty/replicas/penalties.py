"""Penalties of weights that count otherwise than the rest of the loss: for each rank, sample or use, or in one place only."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.names import ALL_MODEL_FEATURES as FEATURES
from ddpcheck.models import spec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ...numpy_network.layers import Gradients, add
from ...numpy_network.terms import Penalised, Term
from ..base import PlainReplica, fault
from .auxiliary_terms import Counting, ForEveryRank, OnRankZero, RightlyTold, TermOf

PENALTY = "check_weight_penalty_counts_once"

penalty_for_every_rank = fault(
    "penalty-for-every-rank", PENALTY, cause="term-counted-per-rank", model_features=FEATURES
)(ForEveryRank)
penalty_on_rank_0 = fault("penalty-on-rank-0", PENALTY, cause="term-on-one-rank", model_features=FEATURES)(OnRankZero)


@fault(
    "penalty-divided-once-more",
    PENALTY,
    cause="term-divided-by-world-size",
    model_features=FEATURES,
)
class DividedOnceMore(RightlyTold):
    """Every rank adds its share of the penalty, and the mean over ranks takes that share once more."""

    def often(self, batch: Batch) -> float:
        return 1 / self.world


@fault(
    "penalty-left-out-in-no-sync",
    PENALTY,
    world_size=1,
    cause="term-missing-in-no-sync",
    model_features=FEATURES,
)
class OnlySynchronised(RightlyTold):
    """Micro-batches inside no_sync have gradients of their samples' losses only."""

    def often(self, batch: Batch) -> float:
        return float(self.syncing)


@fault(
    "penalty-not-in-the-loss",
    PENALTY,
    world_size=1,
    cause="term-missing",
    model_features=FEATURES,
)
class NotTold(Counting):
    """The penalty is added where gradients are made; the loss that is told lacks it."""

    def backward(self, batch: Batch) -> float:
        with self.counted(0.0):
            loss, _ = self.alone(batch)
        super().backward(batch)
        return loss


@fault("penalty-detached", PENALTY, world_size=1, cause="term-missing", model_features=FEATURES)
class Detached(RightlyTold):
    """The penalty is added to the loss as a number, through which no gradient goes."""

    def often(self, batch: Batch) -> float:
        return 0.0


@fault("penalty-for-every-sample", PENALTY, world_size=1, cause="term-summed-over-samples", model_features=FEATURES)
class ForEverySample(Counting):
    """The penalty is added to every sample's loss, and those are added up for it."""

    def often(self, batch: Batch) -> float:
        return len(batch.inputs)


@fault(
    "penalty-not-scaled-with-the-loss",
    PENALTY,
    world_size=1,
    cause="term-not-loss-scaled",
    model_features=FEATURES,
)
class NotScaled(RightlyTold):
    """The loss is scaled before the penalty is added."""

    loss_scale = 1.0

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.loss_scale = model.loss_scale

    def often(self, batch: Batch) -> float:
        return 1 / self.loss_scale


@fault(
    "penalty-twice", PENALTY, world_size=3, cause="term-counted-twice", model_features=FEATURES
)  # with two ranks it is one for each
class Twice(RightlyTold):
    """The penalty is in the loss, and its gradient is added once more after the reduction."""

    def often(self, batch: Batch) -> float:
        return 2.0


@fault(
    "penalty-for-every-use",
    PENALTY,
    world_size=3,
    cause="term-counted-twice",
    model_features=FEATURES,
)
class ForEveryUse(PlainReplica):
    """Penalties are added layer by layer: a weight that two of them share has its own twice."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        shared = {layer.uses for layer in model.layers if isinstance(layer, spec.Linear)}
        for term in self.network.terms:
            if isinstance(term, Penalised) and term.name in shared:
                term.coefficient *= 2


@fault(
    "penalty-of-what-learns",
    PENALTY,
    world_size=1,
    cause="term-of-frozen-missing",
    model_features=FEATURES,
)
class OfWhatLearns(PlainReplica):
    """The penalty is that of the parameters which the optimizer has; the loss that is told jumps when a layer is unfrozen."""

    def backward(self, batch: Batch) -> float:
        for term in self.network.terms:
            if isinstance(term, Penalised) and not term.learns:
                term.coefficient = 0.0
        return super().backward(batch)


@fault("penalty-without-samples", PENALTY, cause="term-without-samples", model_features=FEATURES)
class WithoutSamples(Counting):
    """A rank without samples has the penalty all the same, in its loss and its gradient."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            term.of = self._never_none(term, model.loss_scale)  # type: ignore[method-assign, assignment]  # this one's only

    def _never_none(self, term: Term, scale: float) -> TermOf:
        of = term.of
        return lambda targets, each: of(targets, each if len(each) else np.full(1, scale, each.dtype))


@fault(
    "penalty-weighed-twice",
    PENALTY,
    cause="term-weighted-twice",
    model_features=FEATURES,
    uneven_batches="weighted",
)
class WeighedTwice(RightlyTold):
    """The penalty is multiplied by the rank's share of all samples, and then gradients are."""

    def often(self, batch: Batch) -> float:
        return self.share(len(batch.inputs))

    def share(self, samples: int) -> float:
        return float(samples * self.world / self.comm.all_reduce(np.array([float(samples)]))[0])

    def synchronise(self, batch_size: int) -> None:
        factor = self.share(batch_size)
        self.local = {name: np.asarray(gradient * factor, gradient.dtype) for name, gradient in self.local.items()}
        super().synchronise(batch_size)


@fault(
    "penalty-of-earlier-weights",
    PENALTY,
    world_size=1,
    cause="term-stale",
    model_features=FEATURES,
)
class OfEarlierWeights(PlainReplica):
    """The penalty's gradient is taken of the weights of the first forward pass, whose graph is kept."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        for term in self.network.terms:
            if isinstance(term, Penalised):
                term.backward = self._of_first(term)  # type: ignore[method-assign, assignment]  # this one's only

    def _of_first(self, term: Penalised) -> object:
        backward, first = term.backward, term.weight.copy()

        def of_first(dy: Array, gradients: Gradients) -> Array:
            dx = backward(dy, gradients)
            name = f"{term.name}.weight"
            if term.learns:
                add(gradients, name, (first - term.weight) * term.weight.dtype.type(term._often))
            return dx

        return of_first
