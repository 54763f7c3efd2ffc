"""Causes of replicas that differ from each other or from one process."""

from .cause import Kind

LAST_BITS_DIFFER = Kind(
    "last-bits-differ",
    "The ranks add in different orders: their values differ in the last bits.",
    because="Replicas drift apart from here.",
)
REPLICAS_DIFFER = Kind("replicas-differ", "The replicas have drifted apart, or were never equal.")

NO_SYNC_LEFT_BY_EXCEPTION = Kind(
    "no-sync-left-by-exception",
    "An exception left no_sync() before: it stays on, or the outer one ended with it.",
    certainty="possible",
)
EXCEPTIONS_SWALLOWED = Kind("exceptions-swallowed", "no_sync() swallows exceptions: its exit returns True.")
BATCHES_TAKEN_AS_ONE = Kind(
    "batches-taken-as-one", "Both batches may be taken as one, whose mean weighs them by size.", certainty="possible"
)
LOSSES_AVERAGED = Kind(
    "losses-averaged", "The gradients of the two losses are averaged, not added up.", certainty="possible"
)
FORWARD_CHANGES_BUFFERS = Kind(
    "second-forward-changes-buffers",
    "A second forward changes in place what backward of the first needs, such as buffers.",
)
AVERAGES_START_APART = Kind(
    "averages-start-apart", "Each rank's moving averages start from its own initial values, not rank 0's."
)
AVERAGES_OF_OWN = Kind(
    "averages-of-own-values", "The moving averages take in each rank's own values, not synchronised ones."
)
AVERAGES_ARE_PARAMETERS = Kind(
    "averages-are-parameters", "The moving averages are the parameters: they are started anew, or not saved."
)

SKIPPED_THOUGH_CLEARED = Kind(
    "skipped-though-cleared",
    "A NaN that zero_grad threw away still skips the step, or is still found.",
    certainty="possible",
)
SKIP_MOVES_AVERAGES = Kind("skip-moves-averages", "The skipped step moves the moving averages of the parameters.")
NONFINITE_STEP_TAKEN = Kind("nonfinite-step-taken", "Every rank takes the step with a NaN or an infinity.")
NONFINITE_DECIDED_IN_PARTS = Kind(
    "nonfinite-decided-in-parts",
    "Each parameter, or each shard, decides for itself whether the step is skipped.",
    because="No parameter is NaN, though the step was taken; or NaN is replaced.",
)
NONFINITE_HIDDEN = Kind(
    "nonfinite-looked-for-elsewhere",
    "The decision looks at the loss, one layer, or clipped gradients, which are finite here.",
    certainty="possible",
)
INFINITY_OF_ONE_SIGN = Kind(
    "infinity-of-one-sign", "Only one infinity is there: both signs must be looked for.", certainty="possible"
)
SKIP_DECIDED_PER_RANK = Kind(
    "skip-decided-per-rank",
    "Rank {ranks} takes the step that others skip: each decides by its own gradient.",
    ranks=tuple[int, ...],
)
LOSS_SCALES_APART = Kind(
    "loss-scales-apart", "The ranks' loss scales differ after the step: only some saw the overflow."
)
SKIP_LEAVES_STATE = Kind("skip-leaves-state", "The skipped step changes momentum, a count of steps, or a loss scale.")
NAN_KEPT_AFTER_ZERO_GRAD = Kind(
    "nan-kept-after-zero-grad",
    "A NaN of an earlier batch survives zero_grad: gradients are multiplied by 0, or kept.",
)
NONFINITE_HIDDEN_FROM_RANKS = Kind(
    "nonfinite-replaced",
    "NaN and infinities are replaced, or stay on their rank: nobody notices the divergence.",
)
NONFINITE_FROM_NOWHERE = Kind(
    "nonfinite-from-nowhere", "The rank's own gradients are finite: memory is never written, or overflows."
)

BACKWARD_MOVES_PARAMETERS = Kind(
    "backward-moves-parameters",
    "backward() changes the parameter: it takes a step, or works in the parameter's memory.",
    certainty="possible",
)
BROADCAST_IN_FORWARD = Kind(
    "broadcast-in-forward", "Rank 0's value arrives in the first forward pass, not at construction."
)
GRADIENT_GATHERED_ELSEWHERE = Kind(
    "gradient-gathered-elsewhere",
    "gradients() does not show it: it is dropped, or gathered in another buffer.",
)
ONE_PARAMETER_NOT_RESET = Kind(
    "one-parameter-not-reset",
    "zero_grad leaves this gradient of inside no_sync: the optimizer may lack the parameter.",
    because="Gradients of other parameters are right.",
)
TERM_LOST_IN_NO_SYNC = Kind(
    "term-lost-in-no-sync",
    "The {terms} is left out inside no_sync, or where gradients are reduced.",
    certainty="possible",
    terms=str,
)
BUFFERS_APART_IN_NO_SYNC = Kind(
    "buffers-apart-in-no-sync",
    "The ranks' buffers {buffers} differ in the backward before, inside no_sync.",
    because="Construction did not broadcast them, something changed them, or one backward ran in evaluation mode.",
    certainty="possible",
    buffers=tuple[str, ...],
)

RIGHT_THE_FIRST_TIME = Kind(
    "right-the-first-time",
    "The first backward on this batch is right: a counter of calls ends or wraps.",
    certainty="possible",
)
JOIN_BUFFERS = Kind(
    "join-without-buffers", "Ranks that have run out of batches do not take part in the broadcast of buffers."
)
JOIN_LEAVES_STATE = Kind("join-leaves-state", "The first join() is right, and leaves state for what follows.")
JOIN_WRONG_DIVISOR = Kind(
    "join-wrong-divisor",
    "The sum is divided by {divisor}, not as promised.",
    divisor=str,
)
JOIN_STALE = Kind("join-stale-gradient", "A rank without batches sends its last gradient again, not zeros.")
JOIN_STEPS_MISSING = Kind(
    "join-steps-missing",
    "A rank without batches does not follow the others' steps to their final parameters.",
    because="Steps do not reach it, or its optimizer's state is another one.",
)
IDS_NARROWED = Kind(
    "ids-narrowed",
    "{what} past 2^{bits} change: they are kept in few bits.",
    because="One or two bytes, or half precision, hold no more.",
    certainty="possible",
    what=str,
    bits=tuple[int, ...],
)
REPLICAS_SHARE_STATE = Kind(
    "replicas-share-state",
    "Two replicas share state that a class or a module keeps.",
    because="Each of the two goes right alone.",
)
BROKEN_BACKWARD_LEFT = Kind(
    "broken-backward-left",
    "Operation {operation}, a backward that an exception ended, leaves something behind.",
    because="A count of gradients still to come, a flag, a missing callback, or a message under way.",
    operation=int,
)
BROKEN_BACKWARD_TOLD_APART = Kind(
    "broken-backward-told-apart", "The ranks tell by different things whether the last backward ended."
)
EXCEPTION_DROPPED = Kind(
    "exception-dropped",
    "The exception is caught and dropped, or gradients bypass the module's own parameters.",
)
BATCH_NORM_ITSELF = Kind(
    "batch-norm-itself",
    "Batch norm's own forward or backward is wrong, if networks without one are right.",
    certainty="possible",
)
STRIDES_MIXED = Kind(
    "strides-mixed",
    "{parameter} lies column by column: its gradient is read and written in different orders.",
    certainty="possible",
    parameter=str,
)
MICRO_BATCHES_LOST = Kind(
    "micro-batches-lost",
    "Micro-batches are lost: a counter of them wraps, as one byte does.",
    because="{there} of {count} are there.",
    certainty="possible",
    there=str,
    count=int,
)
STEP_LEAVES_GRADIENTS = Kind(
    "step-leaves-gradients",
    "step() leaves gradients behind: the next backward is added to them.",
    look="which gradients step() sets to zero, those of every parameter and bucket included",
)
STEPS_LOST = Kind(
    "steps-lost",
    "Steps are lost: a counter of them wraps, as one byte does.",
    because="{there} of {count} equal steps moved the parameter.",
    certainty="possible",
    there=str,
    count=int,
)
OWN_INITIAL_VALUE = Kind(
    "own-initial-value", "Rank {rank} keeps its own initial value: rank 0's is not broadcast.", rank=int
)
INITIAL_VALUES_AVERAGED = Kind(
    "initial-values-averaged", "The initial values are averaged over the ranks; they should be rank 0's."
)
SPLIT_BEFORE_BROADCAST = Kind(
    "split-before-broadcast", "Each rank's part is of its own initial values: split before the broadcast."
)
TIMELINE_OF_OTHER = Kind(
    "timeline-of-other-backward",
    "The timeline is another backward's, or uses another clock than time.monotonic().",
)
FREEZING_DECIDED_EARLY = Kind(
    "freezing-decided-at-construction",
    "Layers were frozen or unfrozen after construction, which decides the reduction.",
    because="Other layers than those named may be switched, or one twice.",
    certainty="possible",
)
LATE_RANK_NOT_AWAITED = Kind(
    "late-rank-not-awaited",
    "A rank came {seconds:g} s late, here or before, and is not waited for.",
    certainty="possible",
    seconds=float,
)
LAYER_DOES_NOT_WAIT = Kind("layer-does-not-wait", "The delaying layer does not wait in both forward and backward.")
