"""Why the best weights of a training run are those of another epoch."""

from ..cause import Kind

BEST_INSTEAD_OF_LAST = Kind(
    "best-instead-of-last", "The best weights are loaded into the model at the end.", certainty="possible"
)

BEST_KEPT_BEFORE_LAST_STEP = Kind(
    "best-kept-before-last-step",
    "The best weights are kept before the last step of epoch {epoch}, not at its end.",
    epoch=int,
)
BEST_FORGOTTEN_ON_RESUME = Kind("best-forgotten-on-resume", "The best weights from before the resume are forgotten.")
LATER_OF_EQUAL_BEST = Kind(
    "later-of-equal-best",
    "Several epochs have the lowest loss: the first of them, epoch {epoch}, is the best.",
    epoch=int,
)
CHECKPOINT_BEFORE_BEST = Kind(
    "checkpoint-before-best",
    "The checkpoint was saved before its last epoch, {epoch}, was compared with the best so far.",
    epoch=int,
)
LOWEST_STARTS_FINITE = Kind(
    "lowest-starts-finite", "No loss counts as the lowest: the initial value is a finite number, not infinity."
)
BEST_IS_LAST_OF_EARLY_STOP = Kind(
    "best-is-last-of-early-stop", "The weights of the last epoch, at which the run stops, are returned as the best."
)
BEST_BY_OWN_LOSS = Kind("best-by-own-loss", "The best epoch is chosen by rank {rank}'s own loss.", rank=int)
BEST_NOT_COPIED = Kind(
    "best-not-copied",
    "The last epoch's weights are returned, but epoch {epoch} is best: kept without a copy, or not kept.",
    epoch=int,
)
SMALL_GAIN_IGNORED = Kind(
    "small-gain-ignored", "Epoch {epoch} has a loss lower by {gain:.1g}, but is not kept.", epoch=int, gain=float
)
BEST_OF_EPOCH = Kind("best-of-epoch", "All ranks hold the parameters of epoch {epoch}.", epoch=int)
BEST_BY_EACH_RANK = Kind(
    "best-by-each-rank",
    "Each rank chooses the best epoch by its own loss: the ranks keep epochs {epochs}.",
    epochs=tuple[int, ...],
)
BEST_DIFFERS_BETWEEN_RANKS = Kind(
    "best-differs-between-ranks", "The ranks keep different epochs: {epochs}.", epochs=tuple[int, ...]
)
NAN_COUNTS_AS_LOWEST = Kind("nan-counts-as-lowest", "A NaN loss counts as the lowest: no comparison with it is true.")
