"""What an implementation promises: every field is one sentence of its specification.

A promise made is a promise checked; one not made is a visible skip that names it. Checks ask
`Capabilities.lacks(need)` and never the name of an implementation.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from .choices import COLLECTIVES, MODEL_FEATURES, REDUCTIONS, SCORES

Facet = Literal["collectives", "sampler", "replica", "metrics", "scores", "trainer", "randomness"]
T = TypeVar("T")
_FACET_OF = {"collective": "collectives", "score": "scores", "trainer_feature": "trainer"}
"""The facet that a kind of need is of: without that, what is lacking is the facet."""


def promise(default: T, sentence: str) -> T:
    """A dataclass field with its sentence of the specification in the field's metadata."""
    field: Any = dataclasses.field(default=default, metadata={"sentence": sentence})
    return field  # type: ignore[no-any-return]  # dataclasses reads the Field, type checkers the default's type


@dataclass(frozen=True)
class Capabilities:
    """The promises of one implementation. The defaults are those of a plain data-parallel engine."""

    facets: frozenset[str] = promise(frozenset({"replica"}), "The facets that connect() hands out on every rank.")
    world_sizes: frozenset[int] | None = promise(None, "The world sizes that it can run at; None means any.")

    collectives: frozenset[str] = promise(COLLECTIVES, "The collectives that the collectives facet offers.")
    reductions: frozenset[str] = promise(REDUCTIONS, "The reductions that all_reduce and reduce_scatter offer.")
    collective_dtypes: frozenset[str] = promise(
        frozenset({"float32", "float64", "int32", "int64"}),
        "The NumPy dtypes, integers and floats of up to 64 bits, that collectives carry unchanged.",
    )
    subgroups: bool = promise(False, "Collectives take a group of ranks, and only its members call them.")
    asynchronous: bool = promise(False, "all_reduce can return a handle at once; wait() on it gives the result.")
    in_place: bool = promise(
        False, "all_reduce_in_place() reduces into its argument; empty() gives arrays that the transport reaches best."
    )
    counts_traffic: bool = promise(False, "counts() tells the bytes and messages sent, and the collectives begun.")
    sends_once: bool = promise(
        False,
        "Of N bytes per rank a large all_reduce of W ranks sends 2 (W - 1) N in all, or at most a quarter more, reduce_scatter "
        "no more than that, all_gather W (W - 1) N; in an all_reduce of four ranks or more none sends more than log2 W, "
        "rounded up, times N; and a replica's backward sends as much as an all_reduce of its gradients.",
    )
    sends_least: bool = promise(
        False,
        "It sends_once, and no rank sends more than its share of the least: 2 (W - 1) / W N, half of that, (W - 1) N.",
    )
    bundles_gradients: bool = promise(
        False, "A backward sends many small gradients together, in fewer messages than a quarter of their number."
    )
    writable_results: bool = promise(
        False, "What collectives give can be written to, as arrays of other frameworks, and NumPy's scalars, cannot."
    )
    rounds_float16_once: bool = promise(
        False, "Sums and means of float16 are kept in float32 or wider on the way, and rounded once."
    )
    keeps_tiny_values: bool = promise(
        False,
        "Values next to the smallest of their dtype do not vanish: sums of them are exact, and a mean divides the sum.",
    )
    propagates_nan: bool = promise(
        True, "min and max give NaN wherever any rank has a NaN, as those of MPI and Gloo need not."
    )
    same_bits_on_all_ranks: bool = promise(True, "all_reduce gives every rank the same bits.")
    reproducible: bool = promise(True, "Equal inputs at an equal world size give equal bits from call to call.")
    same_bits_in_every_run: bool = promise(
        False,
        "It is reproducible, and equal inputs give equal bits in another start of the ranks, too, whoever comes first.",
    )

    gradient: Literal["mean", "sum"] = promise(
        "mean", "After backward each gradient is the mean (or the sum) of the ranks' local gradients."
    )
    uneven_batches: Literal["equal_weight", "weighted", "refused"] = promise(
        "equal_weight",
        "Ranks with different batch sizes: their local means weigh equally, or by their sizes, or it is an error.",
    )
    sample_weights: Literal["by_weight", "equal_ranks"] | None = promise(
        None,
        "backward() takes a weight for each sample, and after it the gradient is that of the weighted mean over the samples of "
        "all ranks, so that a rank counts by the sum of its weights; or it is the mean of the ranks' own weighted means, each "
        "normalised by the rank's own sum, and all ranks count equally.",
    )
    reduction_dtype: Literal["model", "bfloat16", "float16"] = promise(
        "model",
        "Gradients are averaged in the model's dtype, or are rounded to this one before and averaged in it, as they are "
        "where they are compressed to save traffic.",
    )
    no_sync: bool = promise(True, "Inside no_sync() backward accumulates local gradients and does not communicate.")
    unused_parameters: Literal["synchronised", "raises", "undefined"] = promise(
        "undefined",
        "A parameter without gradient on some ranks counts as zero there, or raises by the next backward at latest.",
    )
    unused_gradient: Literal["zero", "none"] = promise(
        "none", "The gradient of a parameter that no rank used since zero_grad is zero, or None."
    )
    broadcasts_parameters: bool = promise(
        True,
        "Construction, not the first forward pass, gives every rank the parameters of rank 0; else each keeps its own.",
    )
    broadcasts_buffers: bool = promise(True, "Construction gives every rank the buffers of rank 0, too.")
    batch_norm: Literal["local", "synchronised"] = promise(
        "local", "In training batch norm measures each rank's own batch, or all ranks' samples as one batch."
    )
    remeasures_statistics: bool = promise(
        False, "remeasure() replaces batch norm's running statistics by those of all ranks' samples, equally weighted."
    )
    model_features: frozenset[str] = promise(
        MODEL_FEATURES,
        "The features of a ModelSpec that replicas can hold; rarer ones are mixed_dtypes, strided, empty and sparse parameters, "
        "and a loss's auxiliary terms: penalty, activity, auxiliary_head.",
    )
    replica_dtypes: frozenset[str] = promise(frozenset({"float32", "float64"}), "The dtypes that replicas compute in.")
    several_replicas: bool = promise(
        False,
        "make_replica() can be called again while an earlier replica is in use; neither minds what the other does.",
    )
    predicts_alone: bool = promise(
        True,
        "predict() may be called on some ranks only: it does not communicate, as where parameters are split it must.",
    )
    optimizers: frozenset[str] = promise(frozenset({"sgd", "adam"}), "The optimizers that step() can use.")
    clipping: bool = promise(False, "clip() clips by the global norm of the synchronised gradients.")
    checkpoint: bool = promise(False, "state() on one replica, load_state() on a new one, continue the same training.")
    unfreezing: bool = promise(
        False, "set_trainable() freezes and unfreezes layers; those unfrozen are synchronised from then on."
    )
    zeroes_gradients: bool = promise(
        False, "zero_gradients() turns gradients that are there into zeros, and leaves those that are None."
    )
    join: Literal["divide_by_initial_world", "divide_by_live_ranks"] | None = promise(
        None,
        "Inside join() ranks may have different numbers of batches; one that has run out counts as zero, in a sum divided "
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
        False, "make_replica raises a ValueError for an option that it does not know, in place of leaving it unread."
    )
    named_models: frozenset[str] = promise(frozenset(), "Models that make_replica builds by name, beside a ModelSpec.")

    remainder: Literal["pad", "drop", "uneven"] = promise(
        "pad",
        "Without drop_last, a length that the world size does not divide is padded by repeating samples, "
        "or cut, or the ranks get lengths that differ by one.",
    )
    few_samples: Literal["shared_out", "refused"] = promise(
        "shared_out",
        "Fewer samples than ranks, none included, are shared out like more, or the sampler raises an error on every rank.",
    )
    drop_last: bool = promise(True, "With drop_last the sampler cuts the tail, so that all ranks get equal lengths.")
    shuffles: bool = promise(True, "The sampler shuffles by (seed, epoch); set_epoch changes the order.")
    distinct_streams: bool = promise(
        False, "Different pairs of seed and epoch give different orders, those with equal seed + epoch included."
    )

    sampler_state: bool = promise(
        False,
        "state() in an epoch, before its first sample too, load_state() on a new sampler: it gives what was not given yet, in "
        "order.",
    )

    scores: frozenset[str] = promise(
        SCORES, "The scores that the scores facet computes (ComputeScore says what each is)."
    )
    scores_count_once: bool = promise(
        False, "A sample that several ranks hold, or one holds twice, as where a sampler pads, counts once in a score."
    )
    scores_skip_padding: bool = promise(
        False, "Rows of index -1, which fill a rank's batch up to a size, count in no score."
    )

    trainer_features: frozenset[str] = promise(
        frozenset(),
        "What training runs offer beyond plain ones (TrainingTask): accumulation of micro-batches, a schedule of the learning "
        "rate, the best weights, a checkpoint to resume from, that only rank 0 needs to see it, that resuming changes no bit, "
        "early_stopping.",
    )

    metrics_by_name: bool = promise(
        False, "Ranks may pass the same metrics in different orders: each is averaged with those of its name."
    )

    detects_dead_peer: bool = promise(
        False,
        "When a rank's process dies, every other rank raises an error instead of waiting for ever, though those that raised "
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
        "After close() a process has no more sockets, pipes, threads and child processes than before connect(), and once all "
        "ranks are closed, no temporary file and no name of shared memory is left.",
    )
    restarts_in_place: bool = promise(
        False,
        "A new world can start at the MASTER_ADDR and MASTER_PORT of one that was killed, and sees nothing of it.",
    )
    shares_host: bool = promise(
        False, "Worlds of different MASTER_PORT can be at work on one host at once, and see nothing of each other."
    )
    any_layout: bool = promise(
        False,
        "Ranks of one host that are told of several, by LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK, meet and give the same "
        "results: what follows from these is speed, or a device.",
    )
    closed_to_strangers: bool = promise(
        False,
        "Ranks listen on the interface of MASTER_ADDR only, and whoever connects without belonging to the world is no rank, "
        "delays nobody, and has nothing run that it sends.",
    )

    def dtype_of_reduction(self, dtype: str) -> str:
        """In which gradients of this dtype are averaged."""
        return dtype if self.reduction_dtype == "model" else self.reduction_dtype

    def lacks(self, need: str, world_size: int) -> str | None:
        """Why `need` is not met, or None if it is.

        A need is `facet:NAME`, `collective:NAME`, `reduction:NAME`, `feature:NAME`, `trainer_feature:NAME`, `score:NAME`,
        `optimizer:NAME`, `dtype:NAME` (of replicas), `collective_dtype:NAME` (`float` is any of them), `world_size>=N`,
        `world_size<=N`, `FIELD` (a promise that must be true) or `FIELD=VALUE`. An unknown need is a ValueError, so that a
        misspelt one cannot hide a check.
        """
        kind, separator, name = need.partition(":")
        if separator:
            if (facet := _FACET_OF.get(kind)) and facet not in self.facets:
                return f"facet {facet} is not promised"
            holders = {
                "facet": self.facets,
                "collective": self.collectives,
                "reduction": self.reductions,
                "feature": self.model_features,
                "trainer_feature": self.trainer_features,
                "score": self.scores,
                "optimizer": self.optimizers,
                "dtype": self.replica_dtypes,
                "collective_dtype": self.collective_dtypes
                | {each.rstrip("0123456789") for each in self.collective_dtypes},
            }
            if kind not in holders:
                raise ValueError(f"unknown need {need!r}: a prefix must be one of {', '.join(sorted(holders))}")
            return None if name in holders[kind] else f"{kind} {name} is not promised"
        if need.startswith("world_size>="):
            least = int(need.removeprefix("world_size>="))
            return None if world_size >= least else f"needs at least {least} ranks"
        if need.startswith("world_size<="):
            most = int(need.removeprefix("world_size<="))
            return None if world_size <= most else f"more than {most} ranks show no more"
        field, separator, wanted = need.partition("=")
        if field not in SENTENCES:
            raise ValueError(f"unknown need {need!r}: no such promise")
        have = getattr(self, field)
        if separator:
            return None if str(have) == wanted else f"{field} is {have}, not {wanted}"
        return None if have else f"{field} is not promised"

    def refuses(self, world_size: int) -> str | None:
        """Why it cannot run at this world size, or None if it can."""
        if self.world_sizes is None or world_size in self.world_sizes:
            return None
        return f"runs at world size {', '.join(map(str, sorted(self.world_sizes)))} only"


SENTENCES: dict[str, str] = {f.name: f.metadata["sentence"] for f in dataclasses.fields(Capabilities)}
"""Each promise's sentence, by field name."""
