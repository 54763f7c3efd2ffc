"""Causes of replicas that differ from each other or from one process."""

from .cause import Kind

LAST_BITS_DIFFER = Kind(
    "last-bits-differ",
    "The ranks add in different orders: their values differ in the last bits.",
    because="Replicas drift apart from here.",
    look="the order of additions: reduce on one rank and send the result, or use one order on all ranks",
)
REPLICAS_DIFFER = Kind(
    "replicas-differ",
    "The replicas have drifted apart, or were never equal.",
    look="the broadcast in the construction, then the first step after which they differ",
)

NO_SYNC_LEFT_BY_EXCEPTION = Kind(
    "no-sync-left-by-exception",
    "After an exception inside no_sync(), it stays on, or an outer no_sync() ended with it.",
    because="The same backwards without an exception are right.",
    look="the end of no_sync(), which must restore the earlier setting in a finally block",
)
EXCEPTIONS_SWALLOWED = Kind(
    "exceptions-swallowed",
    "no_sync() swallows exceptions: its exit returns True.",
    look="__exit__ of no_sync(): return None or False",
)
BATCHES_TAKEN_AS_ONE = Kind(
    "batches-taken-as-one", "Both batches may be treated as one, whose mean weighs them by size.", certainty="possible"
)
LOSSES_AVERAGED = Kind(
    "losses-averaged", "The gradients of the two losses are averaged, not added up.", certainty="possible"
)
FORWARD_CHANGES_BUFFERS = Kind(
    "second-forward-changes-buffers",
    "A second forward changes in place what backward of the first needs, such as buffers.",
)
AVERAGES_START_APART = Kind(
    "averages-start-apart",
    "Each rank's moving averages start from its own initial values, not rank 0's.",
    look="when the averages are made: after the broadcast of the parameters",
)
AVERAGES_OF_OWN = Kind(
    "averages-of-own-values",
    "The moving averages take in each rank's own values, not synchronised ones.",
    look="when the averages are updated: after the synchronised step",
)
AVERAGES_ARE_PARAMETERS = Kind(
    "averages-are-parameters",
    "The moving averages equal the parameters: they restarted, or were not saved.",
    look="the state that is saved and loaded: averages beside parameters",
)

SKIPPED_THOUGH_CLEARED = Kind(
    "skipped-though-cleared",
    "A NaN that zero_grad cleared still skips the step, or is still detected.",
    certainty="possible",
)
SKIPPED_THOUGH_FINITE = Kind(
    "skipped-though-finite",
    "A step with huge but finite gradients is skipped: the test for infinities overflows.",
    because="A sum or a norm of the elements overflows before they do.",
    look="the test for infinities: it must look at each element",
)
SKIP_MOVES_AVERAGES = Kind("skip-moves-averages", "The skipped step moves the moving averages of the parameters.")
NONFINITE_STEP_TAKEN = Kind(
    "nonfinite-step-taken",
    "Every rank takes the step with a NaN or an infinity.",
    look="the test for infinities and NaN before the step",
)
NONFINITE_DECIDED_IN_PARTS = Kind(
    "nonfinite-decided-in-parts",
    "Each parameter, or each shard, decides for itself whether the step is skipped.",
    because="Either no parameter is NaN although the step was taken, or NaN is replaced.",
    look="the decision: one for all parameters, before any of them steps",
)
NONFINITE_HIDDEN = Kind(
    "nonfinite-looked-for-elsewhere",
    "The decision looks at the loss, one layer, or clipped gradients, which are finite here.",
    certainty="possible",
)
INFINITY_OF_ONE_SIGN = Kind(
    "infinity-of-one-sign",
    "The array has an infinity of one sign: the implementation must look for both signs.",
    certainty="possible",
)
SKIP_DECIDED_PER_RANK = Kind(
    "skip-decided-per-rank",
    "{ranks:Rank # takes|Ranks # take} the step that others skip: each decides by its own gradient.",
    look="the decision: reduced over ranks, or made from reduced gradients",
    ranks=tuple[int, ...],
)
LOSS_SCALES_APART = Kind(
    "loss-scales-apart",
    "The ranks' loss scales differ after the step: only some saw the overflow.",
    look="the decision on an overflow: reduced over ranks",
)
SKIP_LEAVES_STATE = Kind(
    "skip-leaves-state",
    "The skipped step changes momentum, a count of steps, or a loss scale.",
    look="what runs before the decision, such as counters and momentum",
)
NAN_KEPT_AFTER_ZERO_GRAD = Kind(
    "nan-kept-after-zero-grad",
    "A NaN of an earlier batch survives zero_grad: gradients are multiplied by 0, or kept.",
    look="zero_grad: assign zeros or None, do not multiply",
)
NONFINITE_HIDDEN_FROM_RANKS = Kind(
    "nonfinite-replaced",
    "NaN and infinities are replaced, or stay on their rank: the divergence goes unnoticed.",
    look="calls of nan_to_num and the like before the reduction",
)
NONFINITE_FROM_NOWHERE = Kind(
    "nonfinite-from-nowhere",
    "A NaN or infinity is where no rank has one.",
    because="It may be that of another element, of memory that is never written, or an overflow.",
    look="the places of elements in the buffers that are reduced, on each rank",
    certainty="possible",
)

BACKWARD_MOVES_PARAMETERS = Kind(
    "backward-moves-parameters",
    "backward() changes the parameter: it takes a step, or works in the parameter's memory.",
    look="what the hook writes to: the gradient, not the parameter",
)
PARAMETER_AVERAGED = Kind(
    "parameter-averaged-in-backward",
    "backward() averages the parameter over the ranks, in place of its gradient.",
    look="the hook: one that runs after a gradient is accumulated gets the parameter, whose .grad holds the gradient",
)
BROADCAST_IN_FORWARD = Kind(
    "broadcast-in-forward",
    "Rank 0's value arrives in the first forward pass, not at construction.",
    look="the broadcast: it belongs into the construction",
)
GRADIENT_GATHERED_ELSEWHERE = Kind(
    "gradient-gathered-elsewhere",
    "gradients() does not show the gradient: it is dropped, or accumulated in another buffer.",
)
ONE_PARAMETER_NOT_RESET = Kind(
    "one-parameter-not-reset",
    "zero_grad does not reset this gradient from inside no_sync: the optimizer may lack the parameter.",
    because="Gradients of other parameters are right.",
)
TERM_LOST_IN_NO_SYNC = Kind(
    "term-lost-in-no-sync",
    "The {terms} is left out inside no_sync, or where gradients are reduced.",
    certainty="possible",
    terms=str,
)
NO_SYNC_LATE = Kind(
    "no-sync-late",
    "no_sync takes effect one backward late: gradients inside it are equal on all ranks, the next ones are not.",
    look="the flag of no_sync: the forward pass and the backward of one batch must read the same value",
)
BUFFERS_APART_IN_NO_SYNC = Kind(
    "buffers-apart-in-no-sync",
    "The ranks' buffers {buffers} already differ in the previous backward, inside no_sync.",
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
    "join-without-buffers",
    "Ranks that have run out of batches do not take part in the broadcast of buffers.",
    look="the collectives of a rank without batches: the same as those of the others",
)
JOIN_ENDS_AT_RANK = Kind(
    "join-ends-at-rank",
    "After join() all ranks have the parameters of rank {rank}, which ran out of batches before others.",
    because="The steps after its last batch are lost.",
    look="from which rank parameters are sent at the end: one with the most batches",
    rank=int,
)
JOIN_LEAVES_STATE = Kind(
    "join-leaves-state", "The first join() is right, but leaves state that affects later operations."
)
JOIN_WRONG_DIVISOR = Kind(
    "join-wrong-divisor",
    "The sum is divided by {divisor}, not as promised.",
    look="the divisor inside join()",
    divisor=str,
)
JOIN_STALE = Kind(
    "join-stale-gradient",
    "A rank without batches sends its last gradient again, not zeros.",
    look="what a rank without batches sends: zeros",
)
JOIN_STEPS_MISSING = Kind(
    "join-steps-missing",
    "A rank without batches does not follow the other ranks' steps to their final parameters.",
    because="Steps do not reach it, or its optimizer's state is another one.",
)
IDS_NARROWED = Kind(
    "ids-narrowed",
    "{what} of 2^{bits} or more change: they are stored in too few bits.",
    because="The storage may be one or two bytes, or half precision.",
    certainty="possible",
    what=str,
    bits=tuple[int, ...],
)
REPLICAS_SHARE_STATE = Kind(
    "replicas-share-state",
    "Two replicas share state that a class or a module keeps.",
    because="Each replica alone is right.",
    look="attributes of the class and globals of the module: make them attributes of the replica",
)
BROKEN_BACKWARD_LEFT = Kind(
    "broken-backward-left",
    "Operation {operation}, a backward ended by an exception, leaves state behind.",
    because="The state may be a count of expected gradients, a flag, a missing callback, or a message in flight.",
    look="the state that a backward sets, and what resets it after an exception",
    operation=int,
)
BROKEN_BACKWARD_TOLD_APART = Kind(
    "broken-backward-told-apart", "The ranks decide by different criteria whether the last backward completed."
)
EXCEPTION_DROPPED = Kind(
    "exception-dropped",
    "The exception is caught and dropped, or gradients bypass the module's own parameters.",
    look="except clauses around hooks and backward",
)
BATCH_NORM_ITSELF = Kind(
    "batch-norm-itself",
    "If networks without batch norm are right, batch norm's own forward or backward is wrong.",
    certainty="possible",
)
STRIDES_MIXED = Kind(
    "strides-mixed",
    "{parameter} is column-major: its gradient is read and written in different orders.",
    certainty="possible",
    parameter=str,
)
MICRO_BATCHES_LOST = Kind(
    "micro-batches-lost",
    "Micro-batches are lost: a counter of them wraps, as one byte does.",
    because="{there} of {count} micro-batches are in the gradient.",
    look="the dtype of the counter of micro-batches",
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
    look="the dtype of the counter of steps",
    certainty="possible",
    there=str,
    count=int,
)
OWN_INITIAL_VALUE = Kind(
    "own-initial-value",
    "Rank {rank} keeps its own initial value: rank 0's is not broadcast.",
    look="the broadcast in the construction: it must reach every parameter and buffer, and no copy, as contiguous() may make one",
    rank=int,
)
UNSAVED_BUFFER_NOT_SENT = Kind(
    "unsaved-buffer-not-sent",
    "Rank {rank} keeps its own initial value of a buffer that the state dict leaves out.",
    because="Buffers in the state dict have rank 0's values; those with persistent=False are not broadcast.",
    look="the tensors that construction broadcasts: parameters() and buffers(), not state_dict()",
    rank=int,
)
INITIAL_VALUE_OF_OTHER = Kind(
    "initial-value-of-other-rank",
    "Rank {rank} has rank {other}'s initial value, not rank 0's.",
    look="the source rank of the broadcast at construction",
    rank=int,
    other=int,
)
INITIAL_VALUES_AVERAGED = Kind(
    "initial-values-averaged",
    "The initial values are averaged over the ranks; they should be rank 0's.",
    look="the collective in the construction: a broadcast from rank 0",
)
SPLIT_BEFORE_BROADCAST = Kind(
    "split-before-broadcast",
    "Parameters are split before the broadcast: each rank's part has the rank's own initial values.",
    look="the order in the construction: broadcast first, then split",
)
TIMELINE_OF_OTHER = Kind(
    "timeline-of-other-backward",
    "The timeline is another backward's, or uses another clock than time.monotonic().",
)
FREEZING_DECIDED_EARLY = Kind(
    "freezing-decided-at-construction",
    "Layers were frozen or unfrozen after construction, but construction fixes the reduction.",
    because="The call may also switch layers that were not named, or one layer twice.",
    look="the list of parameters to reduce: made from requires_grad in each backward",
    certainty="possible",
)
LATE_RANK_NOT_AWAITED = Kind(
    "late-rank-not-awaited",
    "A rank came {seconds:g} s late, here or before, and is not waited for.",
    look="time limits, and conditions on messages that have already come",
    certainty="possible",
    seconds=float,
)
LAYER_DOES_NOT_WAIT = Kind("layer-does-not-wait", "The delaying layer does not wait in both forward and backward.")
