"""Metrics and checkpoints are wrong, or a run does not resume as it should."""

from ..cause import Kind

METRIC_WITHOUT_COUNTS = Kind(
    "metric-averaged-without-counts",
    "The reduction at {line} averages ranks with different numbers of samples: {counts}.",
    look="{line}: reduce the sum and the count, then divide",
    line=str,
    counts=tuple[int, ...],
)
METRIC_OF_ONE_RANK = Kind(
    "metric-of-one-rank",
    "Each rank evaluates a shard, and the results are not combined.",
    because="No collective follows the passes over the loader made at {line}.",
    look="a reduction of the metric's sum and count over the ranks",
    line=str,
)
CHECKPOINT_BY_SEVERAL = Kind(
    "checkpoint-written-by-several-ranks",
    "{ranks:Rank # writes|Ranks # write} the same file {file}.",
    look="{line}: save on rank 0 only, then a barrier",
    certainty="certain",
    ranks=tuple[int, ...],
    file=str,
    line=str,
)
CHECKPOINT_PREFIX = Kind(
    "checkpoint-has-wrapper-prefix",
    "The checkpoint's names begin with `module.`, the wrapper's prefix.",
    because="They do not fit the model without a wrapper; with strict=False nothing is loaded at all.",
    look="{line}: save model.module.state_dict()",
    certainty="certain",
    line=str,
)
STATE_RESTORED_ON_ONE_RANK = Kind(
    "state-restored-on-one-rank",
    "{ranks:Only rank # restores|Only ranks # restore} the checkpoint, at {line}.",
    look="{line}: every rank must load",
    certainty="certain",
    ranks=tuple[int, ...],
    line=str,
)
RANDOM_STATE_OF_ONE_RANK = Kind(
    "random-state-of-one-rank",
    "All ranks resume with the random state of rank {rank}.",
    because="In step {step}, every rank draws what rank {rank} draws in the uninterrupted run, in which ranks draw differently.",
    look="the random states in the checkpoint: one for each rank, or a seed for each rank and epoch",
    certainty="certain",
    rank=int,
    step=int,
)
STATE_NOT_RESTORED = Kind(
    "state-not-restored",
    "The resumed run differs from the uninterrupted one: {what}.",
    look="the contents of the checkpoint (optimizer, schedule and random generators too), the values that are loaded, and "
    "settings that depend on the shorter run's arguments",
    what=str,
)
