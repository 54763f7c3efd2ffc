"""The promises of one facet each. Every field is one sentence of the specification; its default promises nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, Self, TypeVar

from .misspelt import refuse_unknown
from .names import (
    ALL_MODEL_FEATURES,
    ALL_TRAINER_FEATURES,
    COLLECTIVE_DTYPES,
    COLLECTIVES,
    MODEL_FEATURES,
    OPTIMIZERS,
    REDUCTIONS,
    SCORES,
)

T = TypeVar("T")


class Determinism(IntEnum):
    """How far equal inputs give equal bits; each rung includes those before it."""

    NONE = 0
    BETWEEN_RANKS = 1
    BETWEEN_CALLS = 2
    BETWEEN_RUNS = 3


class Traffic(IntEnum):
    """How much is sent at most; each rung includes those before it."""

    ANY = 0
    ONCE = 1
    LEAST = 2


def promise(default: T, sentence: str, known: frozenset[str] | None = None) -> T:
    """A field with its sentence; known: the names that a set may hold. Another name is an error, as it would hide checks."""
    field: Any = dataclasses.field(default=default, metadata={"sentence": sentence, "known": known})
    return field  # type: ignore[no-any-return]  # dataclasses reads the Field, type checkers the default's type


@dataclass(frozen=True)
class Promises:
    """One group of promises. offered: whether the adapter hands out this facet; False only in the default of Capabilities."""

    offered: bool = dataclasses.field(default=True, kw_only=True, repr=False)

    def __new__(cls, *args: Any, **given: Any) -> Self:
        elsewhere = {name: group for group in Promises.__subclasses__() for name in group.__dataclass_fields__}
        refuse_unknown(cls, given, elsewhere)
        return super().__new__(cls)


@dataclass(frozen=True)
class WorldPromises(Promises):
    """How the ranks of one adapter start, fail and end, and promises that concern every facet."""

    world_sizes: frozenset[int] | None = promise(None, "The world sizes that it runs at; None means any.")
    determinism: Determinism = promise(
        Determinism.NONE,
        "Equal inputs give equal bits: on all ranks of one all_reduce, from call to call, in another start of the ranks.",
    )
    traffic: Traffic = promise(
        Traffic.ANY,
        "ONCE: of N bytes per rank a large "
        "all_reduce of W ranks sends at most 2 (W - 1) N in all plus a quarter, reduce_scatter no more than that, all_gather "
        "W (W - 1) N; from four ranks on no rank sends more than log2 W, rounded up, times N; a replica's backward sends as "
        "much as an all_reduce of its gradients. LEAST: and no rank sends more than its share, 2 (W - 1) / W N.",
    )
    counts_traffic: bool = promise(False, "counts() tells the bytes and messages sent, and the collectives begun.")
    detects_dead_peer: bool = promise(
        False,
        "When a rank's process dies, every other rank raises an error and does not wait for ever, even if ranks that raised "
        "first live on with their connections open.",
    )
    detects_failed_peer: bool = promise(
        False,
        "When a rank's program ends by an exception, closed or not, its process ends and every other rank raises.",
    )
    detects_mismatch: bool = promise(
        False,
        "When ranks call different collectives, or one with different dtypes, sizes, reductions or roots, all of them "
        "raise an error there or in the next calls, and one says what it called and what came.",
    )
    gives_back: bool = promise(
        False,
        "After close() a process has no more sockets, pipes, threads and child processes than before connect(). Once all "
        "ranks are closed, no temporary file and no name of shared memory is left.",
    )
    restarts_in_place: bool = promise(
        False,
        "A new world can start at the MASTER_ADDR and MASTER_PORT of one that was killed, and sees nothing of it.",
    )
    shares_host: bool = promise(
        False, "Worlds of different MASTER_PORT can run on one host at once, and see nothing of each other."
    )
    any_layout: bool = promise(
        False,
        "Ranks of one host that are told of several hosts, by LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK, meet and give the "
        "same results: these variables change only speed, or a device.",
    )
    closed_to_strangers: bool = promise(
        False,
        "Ranks listen on the interface of MASTER_ADDR only. A connection from outside the world becomes no rank, delays "
        "nobody, and nothing that it sends is run.",
    )


@dataclass(frozen=True)
class CollectivePromises(Promises):
    """The collectives facet: NumPy arrays in and out. Offering it means float32 and float64 at least."""

    operations: frozenset[str] = promise(frozenset(), "The collectives that are offered.", COLLECTIVES)
    reductions: frozenset[str] = promise(
        frozenset(), "The reductions that all_reduce and reduce_scatter offer.", REDUCTIONS
    )
    dtypes: frozenset[str] = promise(
        frozenset({"float32", "float64"}),
        "The NumPy dtypes, integers and floats of up to 64 bits, that collectives carry unchanged.",
        COLLECTIVE_DTYPES,
    )
    subgroups: bool = promise(False, "Collectives take a group of ranks, and only its members call them.")
    asynchronous: bool = promise(False, "all_reduce can return a handle at once; wait() on it gives the result.")
    in_place: bool = promise(
        False,
        "all_reduce_in_place() reduces into its argument, or raises on every rank if that is not contiguous; empty() gives "
        "arrays that the transport reaches best.",
    )
    writable_results: bool = promise(
        False, "Results of collectives can be written to, as arrays of other frameworks, and NumPy's scalars, cannot."
    )
    rounds_float16_once: bool = promise(
        False, "Sums and means of float16 are kept in float32 or wider on the way, and rounded once."
    )
    keeps_tiny_values: bool = promise(
        False,
        "Values next to the smallest of their dtype do not vanish: sums of them are exact, and a mean divides the sum.",
    )
    propagates_nan: bool = promise(
        False, "min and max give NaN wherever any rank has a NaN, as those of MPI and Gloo need not."
    )


@dataclass(frozen=True)
class ReplicaPromises(Promises):
    """The replica facet: a wrapped model. Offering it means backward, step and gradients on plain models in float32."""

    gradient: Literal["mean", "sum"] = promise(
        "mean", "After backward each gradient is the mean (or the sum) of the ranks' local gradients."
    )
    uneven_batches: Literal["equal_weight", "weighted", "refused"] = promise(
        "equal_weight",
        "Ranks with different batch sizes: their local means weigh equally, or by their sizes, or it is an error.",
    )
    sample_weights: Literal["by_weight", "equal_ranks"] | None = promise(
        None,
        "backward() takes a weight for each sample. by_weight: the gradient is that of the weighted mean over the samples of "
        "all ranks. equal_ranks: it is the mean of the ranks' own weighted means, each normalised by the rank's own sum.",
    )
    reduction_dtype: Literal["model", "bfloat16", "float16"] = promise(
        "model",
        "Gradients are averaged in the model's dtype, or are rounded to this one before and averaged in it, as gradients "
        "are that are compressed to save traffic.",
    )
    no_sync: bool = promise(False, "Inside no_sync() backward accumulates local gradients and does not communicate.")
    unused_parameters: Literal["synchronised", "raises", "undefined"] = promise(
        "undefined",
        "A parameter without gradient on some ranks counts as zero there, or raises by the next backward at latest.",
    )
    unused_gradient: Literal["zero", "none"] = promise(
        "none", "The gradient of a parameter that no rank used since zero_grad is zero, or None."
    )
    bundles_gradients: bool = promise(
        False, "A backward sends many small gradients together, in fewer messages than a quarter of their number."
    )
    broadcasts_parameters: bool = promise(
        False,
        "Construction, not the first forward pass, gives every rank the parameters of rank 0; else each keeps its own.",
    )
    broadcasts_buffers: bool = promise(False, "Construction gives every rank the buffers of rank 0, too.")
    synchronises_buffers: bool = promise(
        False,
        "Every training forward of a synchronised backward begins with the buffers of rank 0 on all ranks, also where the model "
        "has replaced them since construction.",
    )
    batch_norm: Literal["local", "synchronised"] = promise(
        "local", "In training batch norm measures each rank's own batch, or all ranks' samples as one batch."
    )
    remeasures_statistics: bool = promise(
        False, "remeasure() replaces batch norm's running statistics by those of all ranks' samples, equally weighted."
    )
    model_features: frozenset[str] = promise(
        frozenset(),
        "The features of a ModelSpec that replicas can hold. Rare ones are mixed_dtypes, strided, empty and sparse "
        "parameters, buffers that forward replaces (replaced_buffers), and the auxiliary terms of a loss: penalty, activity, "
        "auxiliary_head.",
        ALL_MODEL_FEATURES,
    )
    replica_dtypes: frozenset[str] = promise(frozenset({"float32"}), "The dtypes that replicas compute in.")
    several_replicas: bool = promise(
        False, "make_replica() can be called again while an earlier replica is in use; neither affects the other."
    )
    predicts_alone: bool = promise(
        False,
        "predict() may be called on some ranks only: it does not communicate, as it must where parameters are split.",
    )
    optimizers: frozenset[str] = promise(frozenset(), "The optimizers that step() can use.", OPTIMIZERS)
    clipping: bool = promise(False, "clip() clips by the global norm of the synchronised gradients.")
    checkpoint: bool = promise(False, "state() on one replica, load_state() on a new one, continue the same training.")
    unfreezing: bool = promise(
        False, "set_trainable() freezes and unfreezes layers; those unfrozen are synchronised from then on."
    )
    step_zeroes_gradients: bool = promise(
        False, "step() also does what zero_grad() does: gradients are read before it, and there are none after it."
    )
    zeroes_gradients: bool = promise(
        False, "zero_gradients() turns gradients that are there into zeros, and leaves those that are None."
    )
    join: Literal["divide_by_initial_world", "divide_by_live_ranks"] | None = promise(
        None,
        "Inside join() ranks may have different numbers of batches. A rank without batches counts as zero, in a sum divided "
        "by the world size, or by the number of ranks that still have batches; afterwards all have equal parameters.",
    )
    averaged_weights: bool = promise(
        False, "averaged() is OptimizerSpec's moving average of the parameters, the same on all ranks."
    )
    skips_nonfinite: bool = promise(
        False, "step() with a NaN or infinity in any synchronised gradient changes nothing on any rank, then or later."
    )
    two_forwards: bool = promise(
        False, "backward_of_both() goes forward on two batches, then backward once: their gradients are added up."
    )
    broken_backward: Literal["recovers", "raises"] | None = promise(
        None,
        "A backward that an exception ended half-way, on every rank, or inside no_sync on any, leaves nothing behind once "
        "zero_grad() was called; or else, if it was to synchronise, the next one raises on every rank.",
    )
    timeline: bool = promise(False, "timeline() tells when the last backward computed, and when it communicated.")
    refuses_options: bool = promise(
        False, "make_replica raises a ValueError for an option that it does not know, in place of ignoring it."
    )
    numeric_options: frozenset[str] = promise(
        frozenset(),
        "The options of make_replica that are numbers: each value, zero, negative, tiny, huge, infinite and NaN included, gives "
        "right gradients, or make_replica raises an error on every rank.",
    )
    named_models: frozenset[str] = promise(frozenset(), "Models that make_replica builds by name, beside a ModelSpec.")

    def dtype_of_reduction(self, dtype: str) -> str:
        """In which gradients of this dtype are averaged."""
        return dtype if self.reduction_dtype == "model" else self.reduction_dtype


@dataclass(frozen=True)
class SamplerPromises(Promises):
    """The sampler facet: the indices of one rank in one epoch."""

    remainder: Literal["pad", "drop", "uneven"] = promise(
        "pad",
        "Without drop_last, a length that the world size does not divide is padded by repeating samples, "
        "or cut, or the ranks get lengths that differ by one.",
    )
    few_samples: Literal["shared_out", "refused"] = promise(
        "shared_out",
        "Fewer samples than ranks, none included, are shared out like more, or the sampler raises an error on every rank.",
    )
    drop_last: bool = promise(False, "With drop_last the sampler cuts the tail, so that all ranks get equal lengths.")
    shuffles: bool = promise(False, "The sampler shuffles by (seed, epoch); set_epoch changes the order.")
    distinct_streams: bool = promise(
        False, "Different pairs of seed and epoch give different orders, those with equal seed + epoch included."
    )
    behind_loader: bool = promise(
        False,
        "Iterating begins a loader, which may start worker processes and draw a seed from the process's random generators. "
        "Orders do not follow from these. Each epoch has a deadline of its own.",
    )
    sampler_state: bool = promise(
        False,
        "state() in an epoch, before its first sample too, and load_state() on a new sampler: it gives the samples that were "
        "not given yet, in order.",
    )


@dataclass(frozen=True)
class MetricPromises(Promises):
    """The metrics facet: means over all ranks, weighted by counts."""

    metrics_by_name: bool = promise(
        False, "Ranks may pass the same metrics in different orders: each is averaged with those of its name."
    )


@dataclass(frozen=True)
class ScorePromises(Promises):
    """The scores facet: scores of all ranks' samples together."""

    score_names: frozenset[str] = promise(
        frozenset(), "The scores that the scores facet computes (ComputeScore defines each).", SCORES
    )
    scores_count_once: bool = promise(
        False, "A sample that several ranks hold, or one holds twice, as where a sampler pads, counts once in a score."
    )
    scores_skip_padding: bool = promise(
        False, "Rows of index -1, which fill a rank's batch up to a size, count in no score."
    )


@dataclass(frozen=True)
class TrainerPromises(Promises):
    """The trainer facet: whole training runs by a loop of its own."""

    trainer_features: frozenset[str] = promise(
        frozenset(),
        "The features of training runs beside plain ones (TrainingTask): accumulation of micro-batches, a schedule of the "
        "learning rate, the best weights, a checkpoint to resume from, that only rank 0 needs to see it, that resuming "
        "changes no bit, early_stopping.",
        ALL_TRAINER_FEATURES,
    )


@dataclass(frozen=True)
class RandomnessPromises(Promises):
    """The randomness facet: a stream for each rank and epoch, and one that all ranks share."""


PLAIN_WORLD = WorldPromises(determinism=Determinism.BETWEEN_CALLS)
"""Equal bits on all ranks and from call to call, and nothing else: a base to begin from."""
PLAIN_COLLECTIVES = CollectivePromises(
    operations=COLLECTIVES,
    reductions=REDUCTIONS,
    dtypes=frozenset({"float32", "float64", "int32", "int64"}),
    propagates_nan=True,
)
"""All collectives and reductions of floats and integers, and nothing else: a base to begin from."""
PLAIN_ENGINE = ReplicaPromises(
    no_sync=True,
    broadcasts_parameters=True,
    broadcasts_buffers=True,
    model_features=MODEL_FEATURES,
    replica_dtypes=frozenset({"float32", "float64"}),
    predicts_alone=True,
    optimizers=OPTIMIZERS,
)
"""The promises of a plain data-parallel engine, such as DistributedDataParallel by default: a base to begin from."""
PLAIN_SAMPLER = SamplerPromises(drop_last=True, shuffles=True)
"""A sampler that pads, shuffles and can drop the tail: a base to begin from."""
ALL_SCORES = ScorePromises(score_names=SCORES)
"""Every score, and nothing else: a base to begin from."""
