"""Why a training run stops after another epoch."""

from ..cause import Kind

NO_RULE_OF_STOPPING = Kind(
    "stops-by-other-loss", "The run stops by another loss than the one that it reports, or never stops."
)
STOPS_BY_OWN_LOSS = Kind(
    "stops-by-own-loss",
    "Each rank decides by its own loss whether to stop: others wait for a rank that has stopped.",
)
EQUAL_LOSS_COUNTS_AS_LOWER = Kind(
    "equal-loss-counts-as-lower", "A loss equal to the lowest counts as lower: the patience starts again."
)
PATIENCE_ONE_MORE = Kind(
    "patience-one-more", "Patience is one epoch too long: it counts from the lowest loss, or compares with >."
)
PATIENCE_ONE_LESS = Kind(
    "patience-one-less", "Patience is one epoch too short: the epoch of the lowest loss itself counts."
)
COMPARED_WITH_EPOCH_BEFORE = Kind(
    "compared-with-epoch-before", "The loss is compared with the epoch before, not with the lowest."
)
PATIENCE_NOT_CONSECUTIVE = Kind(
    "patience-not-consecutive", "All epochs without improvement count, not only consecutive ones."
)
NAN_DOES_NOT_COUNT = Kind(
    "nan-does-not-count",
    "An epoch with a loss of NaN does not count as one without improvement, so a diverged run goes on.",
    look="comparisons with NaN, which are false: loss >= lowest, and not (loss < lowest), differ",
)
SMALL_IMPROVEMENT_IGNORED = Kind("small-improvement-ignored", "A slightly lower loss does not count as an improvement.")
