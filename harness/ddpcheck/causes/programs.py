"""Causes that the circumstances of a training program point to: its operations, beside the wrong value."""

from .cause import Kind

NO_GRADIENTS_ANYWHERE = Kind(
    "no-gradients-anywhere",
    "No parameter has a gradient on any rank: backward does not reach the parameters.",
    because="A copy of the module may be trained in place of the one that was handed over.",
)
GRADIENTS_TAKEN_BY = Kind(
    "gradients-taken-by",
    "Gradients are gone after {operations}, which came between backward and this look.",
    operations=tuple[str, ...],
)
CLIPPED_UNASKED = Kind(
    "clipped-unasked",
    "All gradients together are clipped to the norm {norm:.4g} although nobody asked.",
    norm=float,
)
USE_TOLD_BY_VALUE = Kind(
    "use-told-by-value",
    "A gradient of mean zero is dropped: use is told by the gradient's value.",
    look="how unused parameters are found: by hooks, not by values",
)
GRADIENT_DROPPED = Kind(
    "gradient-dropped",
    "The gradient is dropped, or never reaches this rank.",
    because="Rank {users} of {world_size} used the parameter.",
    users=tuple[int, ...],
    world_size=int,
)
CHANGES_GRADIENTS = Kind("changes-gradients", "{operation} changes gradients.", operation=str)
WINDOW_COUNTED = Kind(
    "no-sync-counted",
    "Micro-batches are counted: after {count} local ones in a row a backward synchronises.",
    count=int,
)
WINDOW_ENDED_BY = Kind("no-sync-ended-by", "no_sync ends early, by {operations} inside it.", operations=tuple[str, ...])
LOUD_RANK = Kind(
    "loud-rank",
    "One rank's gradients are {times:.0f} x larger here: small or large parts may be dropped.",
    certainty="possible",
    times=float,
)
PROMISE_REDUCTION_DTYPE = Kind(
    "promise-reduction-dtype",
    'If gradients are compressed on purpose, promise reduction_dtype="{dtype}".',
    certainty="possible",
    dtype=str,
)
REDUCTION_DTYPE_IS_OF_REDUCTION = Kind(
    "reduction-dtype-is-of-reduction",
    "The promised reduction_dtype holds for reductions; a rank's own sums keep the model's dtype.",
    certainty="possible",
)
COUNT_ENDS = Kind(
    "call-count-ends",
    "The first {count} {operations} went well: a counter of calls ends or wraps.",
    because="A warm-up, or a period, may end here.",
    certainty="possible",
    count=int,
    operations=str,
)
COUNT_CUT_BY_LOADING = Kind(
    "count-cut-by-loading",
    "The first {count} backwards went well: saving or loading loses a count.",
    certainty="possible",
    count=int,
)
UNTIL_FROZEN = Kind(
    "until-layers-frozen",
    "The first {count} backwards went well, until layers were frozen or unfrozen.",
    certainty="possible",
    count=int,
)

WRONG_FORWARD_VALUES = Kind(
    "wrong-forward-values",
    "This rank computes it with wrong parameters or buffers, or without all of its samples.",
    because="It comes before any reduction.",
    certainty="possible",
)
WRONG_PREDICTION_VALUES = Kind(
    "wrong-prediction-values",
    "This rank predicts with wrong parameters or buffers, or does not evaluate its own batch.",
    certainty="possible",
)
STATE_INCOMPLETE = Kind(
    "loaded-state-incomplete",
    "Not all of the loaded state is there on this rank.",
    because="It was loaded just before.",
    certainty="possible",
)
OTHER_SAMPLE_WEIGHTS = Kind(
    "other-sample-weights",
    "The samples have other weights: an earlier batch's, or in other places.",
    certainty="possible",
)
NEARLY_RIGHT = Kind("nearly-right", "It is computed with fewer bits, such as under autocast.", certainty="possible")
MEAN_OF_NO_SAMPLES = Kind("mean-of-no-samples", "A mean over no samples is 0 divided by 0; this rank's should be 0.")
MEAN_OF_NO_WEIGHT = Kind(
    "mean-of-no-weight", "A mean of samples without weight is 0 divided by 0; this rank's should be 0."
)
NORM_OF_SHARD = Kind("norm-of-shard", "The norm is that of this rank's shard: the ranks' squares are not added.")
NORM_TOO_LARGE = Kind(
    "norm-too-large",
    "The norm is too large: it also covers padding, counts a gradient twice, or rounds.",
    certainty="possible",
)
NORMS_OF_SHARDS_ADDED = Kind(
    "norms-of-shards-added", "The norms of the ranks' shards are added, not their squares.", certainty="possible"
)
NORM_TOO_SMALL = Kind(
    "norm-too-small", "The norm is too small: gradients are missing from it, or squares round.", certainty="possible"
)
NORM_OF_SCALED = Kind(
    "norm-of-scaled-gradients",
    "The norm is taken of gradients that a loss scale still multiplies.",
    because="It is exactly {factor:.0f} x too large.",
    factor=float,
)
UPDATE_NOT_SHARED = Kind(
    "update-not-shared",
    "Rank {ranks} updates the parameter; the update does not reach all ranks, or is not waited for.",
    ranks=tuple[int, ...],
)
OWN_VALUE_IN_UPDATE = Kind(
    "own-value-in-update",
    "A value of each rank's own, such as its local gradient, goes into the update.",
    because="The ranks have different values.",
)
ZEROS_FOR_UNUSED = Kind(
    "zeros-for-unused",
    "No rank used the parameter, but zeros are due: a step takes and applies them.",
    because="They are promised, or were asked for.",
)
ZERO_FOR_NONE = Kind(
    "zero-for-none",
    "A zero gradient stands for none: weight decay and momentum move the parameter.",
)
CONSTRUCTION_VALUE = Kind(
    "construction-leaves-other-value",
    "Construction left another value here, or something changed it.",
    because="It should be rank 0's, unless promised otherwise.",
)

EVALUATION_CHANGES_GRADIENTS = Kind(
    "evaluation-changes-gradients",
    "predict() came before; it may leave a mode or a value changed.",
    certainty="possible",
)
VIEW_OF_ARGUMENT = Kind("works-in-callers-arrays", "The replica works in the caller's arrays; it needs copies.")
CALLERS_MAPPING_CHANGED = Kind(
    "callers-mapping-changed", "Entries are taken out of the caller's mapping, or put into it."
)
STATE_IS_VIEW = Kind(
    "state-is-view",
    "The saved state is a view of the replica's memory: later training changes it.",
)
CALL_CHANGES_BATCH = Kind(
    "call-changes-batch", "{operation} works in place on the caller's batch; it needs a copy.", operation=str
)
EVALUATION_MOVES_STATISTICS = Kind(
    "evaluation-moves-statistics",
    "The evaluation moves the statistic, as a forward pass in training mode does.",
    look="whether eval() reaches the module",
)
EVALUATION_USES_OTHER_VALUES = Kind(
    "evaluation-uses-other-values",
    "The prediction does not use the running statistics and parameters that the replica shows.",
    because="It uses those of its batch, or old ones.",
    certainty="possible",
)
