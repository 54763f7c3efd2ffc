"""Why a parameter, its average, a running statistic or a norm is wrong after a step or after a state was loaded."""

from .cause import Kind

NOT_UPDATED = Kind(
    "not-updated",
    "The parameter is not updated: the step skips it, or works on a copy.",
    look="the list of parameters that the optimizer has, and the memory that it writes to",
)
REPLACED_PARAMETERS_HELD = Kind(
    "replaced-parameters-held",
    "Updates go to the memory that the parameter had at construction; the model uses other memory now.",
    because="The implementation keeps arrays or `.data`, and the model assigned new memory.",
    look="references to parameters' memory that are made once, such as flat buffers and lists of `.data`",
)
FIRST_UPDATE_HAS_STATE = Kind(
    "first-update-has-state",
    "The first update of a new replica may use optimizer state of an earlier one.",
    look="state that a class or a module keeps",
    certainty="possible",
)
GRADIENT_SCALED = Kind(
    "update-gradient-scaled",
    "The gradient of the update is {scaled}.",
    because="By {factor:g} at world size {world_size}: summed and not averaged, or averaged twice.",
    scaled=str,
    factor=float,
    world_size=int,
)
GRADIENT_OR_RATE_SCALED = Kind(
    "update-scaled",
    "The update is {factor:g} x its expected size: the gradient or the learning rate is scaled.",
    because="At world size {world_size}: summed and not averaged, or a learning rate scaled by the ranks.",
    factor=float,
    world_size=int,
)
RATE_SCALED = Kind(
    "learning-rate-scaled",
    "The learning rate is scaled by the world size, {world_size}.",
    because="The update is exactly {factor:g} x its expected size.",
    look="factors of the learning rate",
    factor=float,
    world_size=int,
)
GRADIENTS_KEPT = Kind(
    "update-of-all-gradients",
    "The gradient of the update contains all earlier ones: zero_grad does not reset them.",
    look="zero_grad, and whether it reaches the memory that the step reads",
)
GRADIENT_IN_FLOAT16 = Kind("update-gradient-float16", "The gradient of the update is rounded as in float16.")
GRADIENT_OF_STEP_BEFORE = Kind(
    "update-gradient-stale",
    "The gradient of the update is that of the previous step: stale, or one step late.",
    look="when the step reads the gradient: after backward's reduction is complete",
)
UPDATED_BY_OWN = Kind(
    "updated-by-own-gradient",
    "The update uses this rank's own gradient: it is not reduced.",
    look="the gradient that the step reads: whether the reduction's result is there, and waited for",
)
UPDATED_BY_LARGEST = Kind(
    "updated-by-largest-gradient", "The update uses the largest gradient of all ranks, not their mean."
)
PARAMETERS_AVERAGED = Kind(
    "parameters-averaged", "Each rank steps by its own gradient, and parameters are averaged afterwards."
)
UPDATED_TWICE = Kind(
    "updated-twice", "The parameter is updated twice.", look="calls of step(): one for each optimizer step"
)
STEPPED_FROM_INITIAL = Kind(
    "master-copy-not-loaded",
    "The step begins at the new replica's initial value: a master copy is not loaded.",
)
STATE_SAVED_IN = Kind(
    "state-saved-in",
    "The saved state has fewer bits than {given}, as in {dtype}: values are rounded when they are saved or loaded.",
    because="Values were right before the state was saved.",
    look="casts in state() and load_state(), and the dtype of the file",
    given=str,
    dtype=str,
)
OPTIMIZER_STATE_LOST = Kind(
    "optimizer-state-lost",
    "The optimizer state is lost: momentum restarts from zero.",
    look="state() and load_state(): optimizer state beside parameters",
)
ZERO_STEP_BEFORE = Kind(
    "zero-step-before", "A step with a gradient of zero came before: the optimizer state is not new."
)
MOMENTUM_IN_FLOAT16 = Kind("momentum-float16", "The momentum is held in float16.")
MOMENTUM_OF_OTHER = Kind("momentum-of-other-parameter", "The momentum is that of {parameter}.", parameter=str)
MOMENTUM_SHARED = Kind(
    "momentum-shared",
    "The momentum is shared with {parameter}, whose gradient is in it too.",
    look="the key under which optimizer state is kept: equal shapes, sizes or reused addresses",
    parameter=str,
)
MOMENTUM_DAMPENED = Kind("momentum-dampened", "Momentum is dampened: the gradient is multiplied by 1 - momentum.")
MOMENTUM_OVERWRITTEN = Kind(
    "momentum-overwritten", "The momentum lies in the gradient's memory: the next backward overwrites it."
)
MOMENTUM_MISSING = Kind(
    "momentum-missing",
    "Momentum is missing.",
    look="the momentum that make_replica() gets, and its way to the optimizer",
)
NESTEROV = Kind("nesterov", "The momentum is Nesterov's.")
DECAY_MISSING = Kind(
    "weight-decay-missing",
    "Weight decay is missing.",
    look="the weight_decay that make_replica() gets, and its way to the optimizer",
)
DECAY_TIMES = Kind("weight-decay-repeated", "Weight decay counts {times} times.", times=int)
DECAY_DECOUPLED = Kind("weight-decay-decoupled", "Weight decay is decoupled: it does not go through the gradient.")
HELD_IN = Kind("held-in", "The value is held in {dtype}.", dtype=str)
SHARD_MISPLACED = Kind(
    "optimizer-shard-misplaced",
    "A rank's shard of the momentum is loaded from the wrong place.",
    because="From element {element} on, the momentum is that from element 0 on.",
    element=int,
)
SHARD_OF_RANK_0 = Kind("optimizer-shard-of-rank-0", "Every rank loads rank 0's shard of the optimizer state.")

BIAS_CORRECTION_MISSING = Kind(
    "adam-bias-correction-missing", "Adam's bias correction is missing.", look="the two divisions by 1 - beta ** steps"
)
EPSILON_HAT = Kind("adam-epsilon-hat", "Adam adds eps to the root before bias correction, not after it (epsilon hat).")
EPS_INSIDE_ROOT = Kind("adam-eps-inside-root", "Adam adds eps inside the square root, not after it.")
EPS_FIXED = Kind("adam-eps-fixed", "Adam's eps is the default 1e-8, not the requested one.")
STEPS_FROM_1 = Kind(
    "adam-steps-restart",
    "Adam's bias correction counts steps from 1 again.",
    look="the count of steps in state() and load_state()",
)
STEPS_OF_OTHER = Kind("adam-steps-of-other", "Adam's bias correction counts the steps of another parameter.")
BETA_POWERS_SWAPPED = Kind(
    "adam-beta-powers-swapped", "The powers of Adam's two betas are swapped, as when they are loaded."
)
STEP_AHEAD_FROM_START = Kind(
    "adam-step-ahead-from-start",
    "Adam's bias correction is one step ahead: a zero step came first, or the count starts at 2.",
)
STEP_AHEAD = Kind(
    "adam-step-ahead", "Adam's bias correction is one step ahead: steps are counted twice, or the counter is shared."
)
MOMENT_LOST = Kind(
    "adam-moment-lost",
    "Adam's {moment} moment restarts from zero and the other does not: it is not saved, or not loaded.",
    moment=str,
)
MOMENTS_SWAPPED = Kind("adam-moments-swapped", "Adam's two moments are swapped, as when they are loaded.")
AMSGRAD = Kind("adam-amsgrad", "The optimizer is AMSGrad: it divides by the largest second moment so far.")
MOMENT_IN = Kind(
    "adam-moment-held-in", "Adam's {moment} moment is held, or was saved, in {dtype}.", moment=str, dtype=str
)
BETAS_FIXED = Kind("adam-betas-fixed", "Adam's betas are the defaults 0.9 and 0.999, not the requested ones.")
BETAS_SWAPPED = Kind("adam-betas-swapped", "Adam's two betas are swapped.")

CLIP_OFF_AT_ZERO = Kind(
    "clip-off-at-zero",
    "A max_norm of 0 switches clipping off; it should scale all gradients to 0.",
    look='conditions such as "if max_norm:"',
)
NOT_CLIPPED = Kind(
    "not-clipped", "Gradients are not clipped.", look="clip(): whether it changes the memory that the step reads"
)
DIVIDED_BY_ZERO_NORM = Kind("divided-by-zero-norm", "Gradients are divided by a norm of zero.")
INFINITE_CLIP_NAN = Kind(
    "infinite-clip-nan",
    "Clipping to an infinite max_norm gives NaN, from infinity times zero; it should only measure the norm.",
)
INFINITE_CLIP_SCALES = Kind(
    "infinite-clip-scales", "Clipping to an infinite max_norm scales gradients up; it should only measure the norm."
)
CLIPPED_BY_OWN_NORM = Kind(
    "clipped-by-own-norm",
    "Each gradient is clipped by its own norm, not by that of all together.",
    look="the norm that scales: one for all gradients",
)
CLIPPED_BY_GROUPS = Kind(
    "clipped-by-groups",
    "Gradients are clipped in groups, this one by the norm of {parameters}.",
    look="the norm that scales: one for all gradients",
    parameters=tuple[str, ...],
)
CLIPPED_BY_ELEMENT = Kind("clipped-by-element", "Gradients are cut off element by element, not scaled by the norm.")
CLIPPED_BY_LARGEST = Kind("clipped-by-largest", "Gradients are clipped by the largest element, not by the norm.")
SCALED_UP_TO_LIMIT = Kind("scaled-up-to-limit", "Gradients are scaled up to the limit although their norm is below.")
CLIPPED_TWICE = Kind(
    "clipped-twice",
    "Gradients are clipped twice, or by the square of the norm.",
    look="calls of clip(), and the root of the sum of squares",
)
CLIP_GUARD = Kind(
    "clip-guard-too-large",
    "Gradients are divided by their norm + {guard:g}: the guard against zero is too large.",
    guard=float,
)

LOADED_LATEST = Kind(
    "state-is-no-copy",
    "The state holds the latest values, not the saved ones: it is no copy.",
    look="state(): copies, not views",
)
NOT_LOADED = Kind(
    "state-not-loaded",
    "load_state did not load the value: rank {rank}'s initial value is still there.",
    look="load_state(): it must write into the memory that forward and step read",
    rank=int,
)
STATE_OF_CONSTRUCTION = Kind("state-of-construction", "The state holds the values of the construction.")

NORM_IS_LARGEST = Kind("norm-is-largest", "The norm is the largest element, not the root of the sum of squares.")
NORM_IS_SUM = Kind("norm-is-sum", "The norm is the sum of absolute values, not the root of the sum of squares.")
NORM_IS_SUM_OF_NORMS = Kind(
    "norm-is-sum-of-norms",
    "The norm is the sum of the parameters' norms, not of all together.",
    look="the norm: the root of the sum of all squares",
)
NORM_SQUARED_AGAIN = Kind("norm-squared-again", "The parameters' squared norms are squared once more.")
NORM_COUNTS_TWICE = Kind("norm-counts-twice", "The norm counts the gradient of {parameter} twice.", parameter=str)
NORM_COUNTS_USES = Kind(
    "norm-counts-uses",
    "The norm counts a tied parameter, {parameters}, once for each layer that uses it.",
    look="the loop over layers that collects gradients",
    parameters=tuple[str, ...],
)
NORM_LEAVES_OUT = Kind(
    "norm-leaves-out", "The norm leaves out the gradient of {parameters}.", parameters=tuple[str, ...]
)
NORM_SUMMED_OVER_RANKS = Kind(
    "norm-summed-over-ranks",
    "The squares of the norm are summed over ranks, which hold equal gradients.",
    because="The norm is sqrt({world_size}) x too large.",
    world_size=int,
)
NORM_OF_OWN = Kind(
    "norm-of-own",
    "The norm is that of this rank's own gradients: it is taken before the reduction.",
    look="the order: the reduction first, then the norm",
)
NORM_LARGEST_OF_RANKS = Kind("norm-largest-of-ranks", "The norm is the largest of the ranks' own norms.")
NORM_AFTER_CLIP = Kind(
    "norm-after-clip",
    "The norm is taken after clipping, not before.",
    look="the return value of clip(): the norm before it scales",
)
NORM_STALE = Kind("norm-stale", "The norm is that of an earlier clip: it is measured once and kept.")
NORM_SQUARE = Kind("norm-square", "The norm is its own square: the root is missing.")
NORM_OF_ONE = Kind("norm-of-one-parameter", "The norm is that of one parameter, not of all gradients together.")

AVERAGE_LATE = Kind("average-late", "The moving average is not updated, or is updated before the step.")
AVERAGE_NOT_UPDATED = Kind("average-not-updated", "The moving average is not updated.")
AVERAGE_IS_PARAMETER = Kind("average-is-parameter", "The moving average is the parameter itself, such as a view of it.")
AVERAGE_SWAPPED = Kind("average-weights-swapped", "The weights of the average and of the parameter are swapped.")
AVERAGE_TWICE = Kind("average-updated-twice", "The moving average is updated twice.")
AVERAGE_BY_BACKWARDS = Kind(
    "average-by-backwards", "The moving average is updated by backwards, too, not by steps only."
)
AVERAGE_IN = Kind("average-held-in", "The moving average is held in {dtype}.", dtype=str)
AVERAGE_PER_RANK = Kind("average-updated-per-rank", "The moving average is updated once for each rank.")
AVERAGE_WARMS_UP = Kind(
    "average-warms-up", "The decay of the moving average warms up; the requested decay is constant."
)
AVERAGE_WARMS_UP_SWAPPED = Kind(
    "average-warms-up-swapped", "The decay of the average warms up, and is used as the parameter's weight."
)

STATISTICS_TWICE = Kind(
    "statistics-moved-twice",
    "One batch moves the statistic twice: the forward pass runs twice in training mode.",
    look="a forward pass that is computed anew for backward",
)
STATISTICS_STILL = Kind(
    "statistics-not-moved",
    "The statistic does not move: the forward pass runs in evaluation mode, or on a copy.",
    look="train() and eval() of the module, and copies of it",
)
STATISTICS_STILL_IN_NO_SYNC = Kind(
    "statistics-not-moved-in-no-sync",
    "The statistic does not move inside no_sync, where each micro-batch should move it.",
)
STATISTICS_PUT_TOGETHER = Kind(
    "statistics-put-together-wrongly",
    "The ranks' statistics are combined wrongly.",
    because="Their numbers of samples, or the spread between their means, may be left out.",
    certainty="possible",
)
STATISTICS_MEAN = Kind(
    "statistics-averaged",
    "The value is the mean over all ranks.",
    look="the running statistics: where they are reduced over ranks",
)
STATISTICS_OF_RANK = Kind("statistics-of-rank", "The value is that of rank {rank}.", rank=int)
VARIANCE_BIASED = Kind("variance-biased", "The variance is the biased one, divided by n, not by n - 1.")
VARIANCE_BY_OWN = Kind(
    "variance-by-own-samples", "The variance of all samples is made unbiased by the rank's own number of samples."
)
VARIANCE_BY_TIMES = Kind(
    "variance-by-own-samples-times-ranks",
    "The variance of all samples is made unbiased by this rank's samples times the world size.",
)
MOMENTUM_SWAPPED = Kind(
    "statistics-momentum-swapped", "The statistic is updated with 1 - momentum in place of momentum."
)
STATISTICS_FROM_RANK = Kind(
    "statistics-continue-from-rank", "The statistic continues from rank {rank}'s, not from its own.", rank=int
)
STATISTICS_FROM_MEAN = Kind(
    "statistics-continue-from-mean", "The statistic continues from the mean of all ranks' statistics."
)
