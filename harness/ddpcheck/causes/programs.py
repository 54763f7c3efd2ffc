"""Causes that the circumstances of a training program point to: its operations, beside the wrong value."""

from .cause import Kind

NO_GRADIENTS_ANYWHERE = Kind(
    "no-gradients-anywhere",
    "No parameter has a gradient on any rank: backward does not reach the parameters.",
    because="A copy of the module may be trained in place of the one that was handed over.",
    look="the loss that backward starts from: whether its graph reaches the parameters",
)
GRADIENTS_TAKEN_BY = Kind(
    "gradients-taken-by",
    "Gradients are gone after {operations}, called between backward and this reading.",
    look="{operations}: whether it clears or moves gradients",
    operations=tuple[str, ...],
)
CLIPPED_UNASKED = Kind(
    "clipped-unasked",
    "Gradients are clipped to the global norm {norm:.4g}, although no clipping was requested.",
    look="calls of clip_grad_norm_, and default values of max_norm",
    norm=float,
)
USE_TOLD_BY_VALUE = Kind(
    "use-told-by-value",
    "A gradient whose mean is zero is dropped: its value decides whether the parameter counts as used.",
    look="how unused parameters are found: by hooks, not by values",
)
GRADIENT_DROPPED = Kind(
    "gradient-dropped",
    "The gradient is dropped, or never reaches this rank.",
    because="{users:Rank #|Ranks #} of {world_size} used the parameter.",
    look="hooks and buffers between backward and gradients()",
    users=tuple[int, ...],
    world_size=int,
)
CHANGES_GRADIENTS = Kind(
    "changes-gradients", "{operation} changes gradients.", look="writes to gradients in {operation}", operation=str
)
WINDOW_COUNTED = Kind(
    "no-sync-counted",
    "After {count:# local micro-batch|# local micro-batches} in a row, a backward inside no_sync synchronises.",
    look="the counter of micro-batches: only the caller's no_sync decides",
    count=int,
)
NOT_REDUCED_AFTER_NO_SYNC = Kind(
    "not-reduced-after-no-sync",
    "After a backward inside no_sync, a synchronised backward does not reduce this gradient.",
    look="state that a backward inside no_sync changes, such as a bucket's count of gradients that are still to come",
)
REDUCED_EARLY_AFTER_NO_SYNC = Kind(
    "reduced-early-after-no-sync",
    "After a backward inside no_sync, a synchronised backward reduces this gradient before it has added its own part.",
    look="state that a backward inside no_sync changes, such as a bucket's count or set of gradients that are still to come",
)
WINDOW_ENDED_BY = Kind(
    "no-sync-ended-by",
    "no_sync ends early, by {operations} inside it.",
    look="what {operations} does to the flag of no_sync",
    operations=tuple[str, ...],
)
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
    "The first {count} {operations} were right: a counter of calls ends or wraps.",
    because="A warm-up, or a period, may end here.",
    certainty="possible",
    count=int,
    operations=str,
)
COUNT_CUT_BY_LOADING = Kind(
    "count-cut-by-loading",
    "{count:The first backward was|The first # backwards were} right: saving or loading truncates a counter.",
    certainty="possible",
    count=int,
)
UNTIL_FROZEN = Kind(
    "until-layers-frozen",
    "{count:The first backward was|The first # backwards were} right, until layers were frozen or unfrozen.",
    look="buckets and hooks, which must follow requires_grad",
    certainty="possible",
    count=int,
)

WRONG_FORWARD_VALUES = Kind(
    "wrong-forward-values",
    "This rank uses wrong parameters or buffers, or leaves out some of its samples.",
    because="The value is computed before any reduction.",
    look="the parameters and buffers that forward reads, and the slice of the batch",
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
    because="The state was loaded just before.",
    certainty="possible",
)
OTHER_SAMPLE_WEIGHTS = Kind(
    "other-sample-weights",
    "The samples have wrong weights: those of an earlier batch, or in another order.",
    certainty="possible",
)
NEARLY_RIGHT = Kind("nearly-right", "The value is computed with fewer bits, as under autocast.", certainty="possible")
MEAN_OF_NO_SAMPLES = Kind(
    "mean-of-no-samples", "The mean over no samples is 0 divided by 0; on this rank it should be 0."
)
MEAN_OF_NO_WEIGHT = Kind(
    "mean-of-no-weight", "The mean of samples without weight is 0 divided by 0; on this rank it should be 0."
)
NORM_OF_SHARD = Kind("norm-of-shard", "The norm is that of this rank's shard: the ranks' squares are not added.")
NORM_TOO_LARGE = Kind(
    "norm-too-large",
    "The norm is too large: it includes padding, counts a gradient twice, or is rounded.",
    certainty="possible",
)
NORMS_OF_SHARDS_ADDED = Kind(
    "norms-of-shards-added", "The norms of the ranks' shards are added, not their squares.", certainty="possible"
)
NORM_TOO_SMALL = Kind(
    "norm-too-small", "The norm is too small: gradients are missing, or squares are rounded.", certainty="possible"
)
NORM_OF_SCALED = Kind(
    "norm-of-scaled-gradients",
    "The norm is taken of gradients that a loss scale still multiplies.",
    because="The norm is exactly {factor:.0f} x too large.",
    factor=float,
)
UPDATE_NOT_SHARED = Kind(
    "update-not-shared",
    "{ranks:Rank # updates|Ranks # update} the parameter; the update does not reach all ranks, or is not waited for.",
    look="the broadcast or gather after the step, and its wait",
    ranks=tuple[int, ...],
)
OWN_VALUE_IN_UPDATE = Kind(
    "own-value-in-update",
    "The update uses a value that differs by rank, such as the local gradient.",
    because="The ranks have different values.",
    look="the values that the step reads: gradients after the reduction",
)
ZEROS_FOR_UNUSED = Kind(
    "zeros-for-unused",
    "No rank used the parameter, but zeros are due: a step takes and applies them.",
    because="Zeros are promised, or were requested.",
)
ZERO_FOR_NONE = Kind(
    "zero-for-none",
    "A zero gradient stands for none: weight decay and momentum move the parameter.",
    look='the gradient of a parameter that no rank used: None, unless unused_gradient="zero" is promised',
)
CONSTRUCTION_VALUE = Kind(
    "construction-leaves-other-value",
    "Construction set another value here, or something changed it later.",
    because="The value should be rank 0's, unless promised otherwise.",
)

EVALUATION_CHANGES_GRADIENTS = Kind(
    "evaluation-changes-gradients",
    "An earlier predict() may have left a mode or a value changed.",
    certainty="possible",
)
VIEW_OF_ARGUMENT = Kind(
    "works-in-callers-arrays",
    "The replica works in the caller's arrays; it needs copies.",
    look="make_replica() and load_state(): copies of the given arrays",
)
CALLERS_MAPPING_CHANGED = Kind(
    "callers-mapping-changed",
    "The call removes entries from the caller's mapping, or adds entries to it.",
    look="pop() and assignments on the caller's mapping: work on a copy",
)
STATE_IS_VIEW = Kind(
    "state-is-view",
    "The saved state is a view of the replica's memory: later training changes it.",
    look="state(): copies of parameters and buffers",
)
CALL_CHANGES_BATCH = Kind(
    "call-changes-batch",
    "{operation} works in place on the caller's batch; it needs a copy.",
    look="operators that work in place on the batch, such as += and normal_()",
    operation=str,
)
EVALUATION_MOVES_STATISTICS = Kind(
    "evaluation-moves-statistics",
    "The evaluation moves the statistic, as a forward pass in training mode does.",
    look="whether eval() reaches the module",
)
EVALUATION_USES_OTHER_VALUES = Kind(
    "evaluation-uses-other-values",
    "The prediction does not use the running statistics and parameters that the replica shows.",
    because="The prediction uses its batch's statistics, or old values.",
    certainty="possible",
)
