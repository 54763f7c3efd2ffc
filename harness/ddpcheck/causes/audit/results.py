"""Metrics and checkpoints are wrong, or a run does not resume as it should."""

from ..cause import Kind

MEAN_OF_OWN_MEANS = Kind(
    "mean-of-own-means",
    "Values that the ranks have divided by {numbers} are averaged at {line}, as if these were equal.",
    because="One process divides the sum by all of them together.",
    look="{divided}: reduce the sum and the number, and divide then",
    numbers=tuple[int, ...],
    line=str,
    divided=str,
)
METRIC_WITHOUT_COUNTS = Kind(
    "metric-averaged-without-counts",
    "The reduction at {line} averages ranks with different numbers of samples: {counts}.",
    look="{line}: reduce the sum and the count, then divide",
    line=str,
    counts=tuple[int, ...],
)
METRIC_IS_NO_MEAN = Kind(
    "metric-is-no-mean",
    "{metric} is averaged over ranks at {line}, which is not {metric} of all samples.",
    because="It is no mean over samples, so that the mean of its values on shards is another number.",
    look="{line}: gather predictions and labels, or reduce the counts from which it is computed, then compute it once",
    metric=str,
    line=str,
)
METRIC_DIVIDED_BY_OWN_COUNT = Kind(
    "metric-divided-by-own-count",
    "The sum over ranks at {line} is divided by the number of one rank's samples.",
    because="All ranks have {total} samples, and each divides by its own {count}.",
    look="{line}: reduce the number of samples, too",
    certainty="certain",
    count=int,
    total=int,
    line=str,
)
METRIC_DIVIDED_BY_ALL = Kind(
    "metric-divided-by-all-and-averaged",
    "{divided} divides by the size of all shards, and {line} takes the mean of the results over ranks.",
    because="Each rank sums over {count:# sample|# samples} of its own only. The reported number is 1/{ranks} of the true one.",
    look="{divided}: divide by the rank's own number of samples, or reduce the sum and divide once",
    count=int,
    ranks=int,
    line=str,
    divided=str,
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
RESUMED_AT_ANOTHER_BATCH = Kind(
    "resumed-at-another-batch",
    "The resumed run goes on with the batch of step {place}, and the uninterrupted run with that of step {step}.",
    because="Each rank's batch in step {step} is its own batch of step {place} in the uninterrupted run.",
    look="the number of batches that are skipped after resuming: a rank skips its own batches, not those of all ranks; and the "
    "epoch that the sampler is given",
    certainty="certain",
    step=int,
    place=int,
)
STATE_NOT_RESTORED = Kind(
    "state-not-restored",
    "The resumed run differs from the uninterrupted one: {what}.",
    look="the contents of the checkpoint (optimizer, schedule and random generators too), the values that are loaded, and "
    "settings that depend on the shorter run's arguments",
    what=str,
)
