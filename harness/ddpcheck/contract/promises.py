"""The promises of one facet each. Every field is one sentence of the specification; its default promises nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, Self, TypeVar

from .allowed_names import (
    ALL_MODEL_FEATURES,
    ALL_TRAINER_FEATURES,
    COLLECTIVE_DTYPES,
    COLLECTIVES,
    MODEL_FEATURES,
    OPTIMIZERS,
    REDUCTIONS,
    SCORES,
)
from .promise_sets import CallForm, FailureRule, FloatRule, Member, RendezvousRule, ReplicaMethod
from .unknown_promises import refuse_unknown

T = TypeVar("T")


class Determinism(IntEnum):
    """Where equal inputs give equal bits; each level includes the levels before it."""

    NONE = 0
    BETWEEN_RANKS = 1
    BETWEEN_CALLS = 2
    BETWEEN_RUNS = 3


class Traffic(IntEnum):
    """Limits on the bytes sent; each level includes the levels before it."""

    ANY = 0
    ONCE = 1
    LEAST = 2


class ReplicaSync(IntEnum):
    """The state of replicas that equals rank 0's; each level includes the levels before it."""

    NOTHING = 0
    PARAMETERS = 1
    BUFFERS = 2
    EACH_FORWARD = 3


def promise(default: T, sentence: str, known: frozenset[str] | type[Member] | None = None) -> T:
    """A field with its sentence; known: the values that a set may hold. Others are an error, because a misspelt one
    would hide checks.
    """
    members = tuple(known) if isinstance(known, type) else ()
    about = {"sentence": sentence, "known": frozenset(known) if known is not None else None, "members": members}
    field: Any = dataclasses.field(default=default, metadata=about)
    return field  # type: ignore[no-any-return]  # dataclasses reads the Field, type checkers the default's type


@dataclass(frozen=True)
class Promises:
    """One group of promises. offered: whether the adapter hands out this facet; False only in the default of Capabilities."""

    offered: bool = dataclasses.field(default=True, kw_only=True, repr=False)

    def __new__(cls, *args: Any, **given: Any) -> Self:
        elsewhere = {name: place for group in Promises.__subclasses__() for name, place in places(group).items()}
        refuse_unknown(cls, given, elsewhere)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Any set may be given; a string in a set of members becomes the member, or is a ValueError."""
        for each in promises_of(type(self)):
            value = getattr(self, each.name)
            if isinstance(value, (set, frozenset)):
                kind = type(each.metadata["members"][0]) if each.metadata["members"] else lambda name: name
                object.__setattr__(self, each.name, frozenset(map(kind, value)))


def promises_of(group: type[Promises]) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a group that are promises, in the order of the specification."""
    return tuple(each for each in dataclasses.fields(group) if each.name != "offered")


def places(group: type[Promises]) -> dict[str, str]:
    """The place of each promise of a group, by its name: the group itself, or a set of the group."""
    fields = promises_of(group)
    found = {each.name: group.__name__ for each in fields}
    return found | {str(m): f"{group.__name__}.{each.name}" for each in fields for m in each.metadata["members"]}


@dataclass(frozen=True)
class WorldPromises(Promises):
    """Promises about the start, failure and end of ranks, and promises that concern every facet."""

    world_sizes: AbstractSet[int] | None = promise(None, "The world sizes that the adapter runs at; None means any.")
    determinism: Determinism = promise(
        Determinism.NONE,
        "Equal inputs give equal bits: on all ranks of one all_reduce, in repeated calls, and after a restart of the ranks.",
    )
    traffic: Traffic = promise(
        Traffic.ANY,
        "ONCE limits large collectives of N bytes per rank on W ranks. All ranks together send at most 2 (W - 1) N plus a "
        "quarter in all_reduce and reduce_scatter, and W (W - 1) N in all_gather. From four ranks on, each rank sends at most "
        "log2 W, rounded up, times N. A replica's backward sends no more than an all_reduce of its gradients. LEAST: in "
        "addition, each rank sends at most its share, 2 (W - 1) / W N.",
    )
    counts_traffic: bool = promise(False, "counts() reports the bytes and messages sent, and the collectives started.")
    failure_rules: AbstractSet[FailureRule] = promise(
        frozenset(), "Rules for ranks that fail, call different collectives, or close.", FailureRule
    )
    rendezvous_rules: AbstractSet[RendezvousRule] = promise(
        frozenset(), "Rules for the start of worlds.", RendezvousRule
    )

    @property
    def equal_bits_on_ranks(self) -> bool:
        """Whether an all_reduce gives all ranks the same bits."""
        return self.determinism >= Determinism.BETWEEN_RANKS


@dataclass(frozen=True)
class CollectivePromises(Promises):
    """The collectives facet: NumPy arrays in and out. Offering it means float32 and float64 at least."""

    operations: AbstractSet[str] = promise(frozenset(), "The collectives that the adapter offers.", COLLECTIVES)
    reductions: AbstractSet[str] = promise(
        frozenset(), "The reductions that all_reduce and reduce_scatter offer.", REDUCTIONS
    )
    dtypes: AbstractSet[str] = promise(
        frozenset({"float32", "float64"}),
        "The NumPy dtypes, integers and floats of up to 64 bits, that collectives carry unchanged.",
        COLLECTIVE_DTYPES,
    )
    call_forms: AbstractSet[CallForm] = promise(
        frozenset(), "The forms in which collectives can be called, beside the plain one.", CallForm
    )
    writable_results: bool = promise(
        False,
        "The caller can write to the results of collectives. Arrays of other frameworks and NumPy scalars are read-only.",
    )
    float_rules: AbstractSet[FloatRule] = promise(
        frozenset(), "Rules for floats that are rounded, tiny or NaN.", FloatRule
    )


@dataclass(frozen=True)
class ReplicaPromises(Promises):
    """The replica facet: a wrapped model. Offering it means backward, step and gradients on plain models in float32."""

    gradient: Literal["mean", "sum"] = promise(
        "mean", "After backward each gradient is the mean (or the sum) of the ranks' local gradients."
    )
    uneven_batches: Literal["equal_weight", "weighted", "refused"] = promise(
        "equal_weight",
        "Ranks with different batch sizes: their local means weigh equally, or by batch size, or backward raises an error.",
    )
    sample_weights: Literal["by_weight", "equal_ranks"] | None = promise(
        None,
        "backward() takes a weight for each sample. by_weight: the gradient is that of the weighted mean over the samples of "
        "all ranks. equal_ranks: the gradient is the mean of the ranks' weighted means, each normalised by that rank's weights.",
    )
    reduction_dtype: Literal["model", "bfloat16", "float16"] = promise(
        "model",
        "Gradients are averaged in the model's dtype, or are first rounded to this dtype and averaged in it, as with gradient "
        "compression.",
    )
    replica_methods: AbstractSet[ReplicaMethod] = promise(
        frozenset(), "The optional methods that replicas have.", ReplicaMethod
    )
    unused_parameters: Literal["synchronised", "raises", "undefined"] = promise(
        "undefined",
        "A parameter without gradient on some ranks counts as zero there, or raises by the next backward at the latest.",
    )
    unused_gradient: Literal["zero", "none"] = promise(
        "none", "The gradient of a parameter that no rank used since zero_grad is zero, or None."
    )
    bundles_gradients: bool = promise(
        False, "A backward sends many small gradients together, in fewer messages than a quarter of their number."
    )
    replica_sync: ReplicaSync = promise(
        ReplicaSync.NOTHING,
        "What equals rank 0's on every rank. PARAMETERS: construction, not the first forward pass, gives every rank the "
        "parameters of rank 0. BUFFERS: construction gives its buffers, too. EACH_FORWARD: in addition, every training forward "
        "of a synchronised backward begins with the buffers of rank 0 on all ranks, even if the model has replaced its buffers "
        "since construction. The first forward after one inside no_sync may begin with each rank's own, as in torch's "
        "DistributedDataParallel. NOTHING: each rank keeps its own.",
    )
    batch_norm: Literal["local", "synchronised"] = promise(
        "local",
        "In training, batch norm normalises by each rank's own batch, or by all ranks' samples as one batch. "
        "Where by its own, rank 0's running statistics follow its own batches, as without a wrapper: no mean over ranks. "
        "The variance may be computed as E[x^2] - E[x]^2, which loses digits where the mean is large.",
    )
    model_features: AbstractSet[str] = promise(
        frozenset(),
        "The ModelSpec features that replicas support. Rare ones are mixed_dtypes, strided, empty and sparse parameters, "
        "buffers and parameter memory that forward replaces (replaced_buffers, replaced_parameters), and auxiliary loss terms: "
        "penalty, activity, auxiliary_head.",
        ALL_MODEL_FEATURES,
    )
    replica_dtypes: AbstractSet[str] = promise(frozenset({"float32"}), "The dtypes that replicas compute in.")
    several_replicas: bool = promise(
        False, "make_replica() can be called again while an earlier replica is in use; neither affects the other."
    )
    predicts_alone: bool = promise(
        False,
        "predict() may be called on some ranks only: it does not communicate. Sharded parameters need communication.",
    )
    optimizers: AbstractSet[str] = promise(frozenset(), "The optimizers that step() can use.", OPTIMIZERS)
    step_zeroes_gradients: bool = promise(
        False, "step() also performs zero_grad(): gradients must be read before it, and there are none after it."
    )
    join: Literal["divide_by_initial_world", "divide_by_live_ranks"] | None = promise(
        None,
        "Inside join() ranks may have different numbers of batches. A rank without batches counts as zero. The sum is divided "
        "by the world size, or by the number of ranks that still have batches. Afterwards all ranks have equal parameters.",
    )
    skips_nonfinite: bool = promise(
        False, "step() with a NaN or infinity in any synchronised gradient changes nothing on any rank, then or later."
    )
    broken_backward: Literal["recovers", "raises"] | None = promise(
        None,
        "An exception ends a backward half-way: on every rank, or inside no_sync on any rank. recovers: after zero_grad() the "
        "failed backward has no effect. raises: if it was to synchronise, the next backward may instead raise on every rank.",
    )
    refuses_options: bool = promise(
        False, "make_replica raises a ValueError for an unknown option instead of ignoring it."
    )
    numeric_options: AbstractSet[str] = promise(
        frozenset(),
        "The numeric options of make_replica. Every value, including zero, negative, tiny, huge, infinite and NaN, gives right "
        "gradients, or make_replica raises an error on every rank.",
    )

    def dtype_of_reduction(self, dtype: str) -> str:
        """The dtype in which gradients of `dtype` are averaged."""
        return dtype if self.reduction_dtype == "model" else self.reduction_dtype


@dataclass(frozen=True)
class SamplerPromises(Promises):
    """The sampler facet: the indices of one rank in one epoch."""

    remainder: Literal["pad", "drop", "uneven"] = promise(
        "pad",
        "Without drop_last, a length that is not a multiple of the world size is padded by repeating samples (pad) or cut "
        "(drop), or the ranks' lengths differ by one (uneven).",
    )
    few_samples: Literal["shared_out", "refused"] = promise(
        "shared_out",
        "Fewer samples than ranks, including none, are distributed by the same rule, or the sampler raises on every rank.",
    )
    drop_last: bool = promise(False, "With drop_last the sampler cuts the tail, so that all ranks get equal lengths.")
    shuffles: bool = promise(False, "The sampler shuffles by (seed, epoch); set_epoch changes the order.")
    distinct_streams: bool = promise(
        False, "Different pairs of seed and epoch give different orders, even if seed + epoch is equal."
    )
    behind_loader: bool = promise(
        False,
        "Iterating starts a loader, which may start worker processes and draw a seed from the process's random generators. "
        "Orders do not depend on these generators. Each epoch has its own deadline.",
    )
    sampler_state: bool = promise(
        False,
        "state() may be called at any point of an epoch, even before the first sample. A new sampler that loads this state "
        "yields the remaining samples, in order.",
    )


@dataclass(frozen=True)
class MetricPromises(Promises):
    """The metrics facet: means over all ranks, weighted by counts."""

    metrics_by_name: bool = promise(
        False, "Ranks may pass the same metrics in different orders: metrics are matched by name."
    )


@dataclass(frozen=True)
class ScorePromises(Promises):
    """The scores facet: scores of all ranks' samples together."""

    score_names: AbstractSet[str] = promise(
        frozenset(), "The scores that the scores facet computes (ComputeScore defines each).", SCORES
    )
    scores_count_once: bool = promise(
        False,
        "A sample that several ranks hold, or one rank holds twice, such as sampler padding, counts once in a score.",
    )
    scores_skip_padding: bool = promise(False, "Padding rows, whose index is -1, count in no score.")


@dataclass(frozen=True)
class TrainerPromises(Promises):
    """The trainer facet: whole training runs by the implementation's own loop."""

    trainer_features: AbstractSet[str] = promise(
        frozenset(),
        "Optional features of training runs (TrainingTask): accumulation of micro-batches, a learning-rate schedule, the best "
        "weights, a checkpoint to resume from, a checkpoint that only rank 0 sees (checkpoint_on_rank_0), resuming with equal "
        "bits (exact_resume), early_stopping.",
        ALL_TRAINER_FEATURES,
    )


@dataclass(frozen=True)
class RandomnessPromises(Promises):
    """The randomness facet: a stream for each rank and epoch, and one that all ranks share."""


PLAIN_WORLD = WorldPromises(determinism=Determinism.BETWEEN_CALLS)
"""A base for adapters: equal bits on all ranks and in repeated calls, and no other promises."""
PLAIN_COLLECTIVES = CollectivePromises(
    operations=COLLECTIVES,
    reductions=REDUCTIONS,
    dtypes=frozenset({"float32", "float64", "int32", "int64"}),
    float_rules={FloatRule.PROPAGATES_NAN},
)
"""A base for adapters: all collectives and reductions of floats and integers, and no other promises."""
PLAIN_ENGINE = ReplicaPromises(
    replica_methods={ReplicaMethod.NO_SYNC},
    replica_sync=ReplicaSync.BUFFERS,
    model_features=MODEL_FEATURES,
    replica_dtypes=frozenset({"float32", "float64"}),
    predicts_alone=True,
    optimizers=OPTIMIZERS,
)
"""A base for adapters: the promises of a plain data-parallel engine, such as DistributedDataParallel by default."""
PLAIN_SAMPLER = SamplerPromises(drop_last=True, shuffles=True)
"""A base for adapters: a sampler that pads, shuffles and can drop the tail."""
ALL_SCORES = ScorePromises(score_names=SCORES)
"""A base for adapters: every score, and no other promises."""
