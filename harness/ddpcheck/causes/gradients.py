"""Why a gradient or a loss differs from the mean of the ranks' parts."""

from .cause import Kind
from .values import EVERY_HANDLE

STATE_LEFT_BEHIND = Kind(
    "state-left-behind",
    "An earlier backward may have left state that affects this gradient.",
    because="The earlier backwards themselves were right.",
    look="residuals, buffers and layouts that outlive a backward",
    certainty="possible",
)
PARAMETER_ADDED = Kind(
    "parameter-added-to-gradient",
    "The parameter's own value is added to its gradient.",
    look="a buffer for both parameters and gradients, which must be cleared between them",
)
OTHERS_PARTS_MISSING = Kind(
    "others-parts-missing",
    "The gradient is zero like this rank's own: the other ranks' parts are missing.",
    look="ranks without this gradient, which must still receive it",
)
ACCUMULATED_SURVIVES_ZERO_GRAD = Kind(
    "accumulated-survives-zero-grad",
    "Gradients that were accumulated inside no_sync survive zero_grad and count again.",
    look="zero_grad: it must also clear gradients that were accumulated inside no_sync",
)
ADDED_TO_OWN = Kind(
    "added-to-own-gradient",
    "The reduced gradient is added to this rank's own; it should replace it.",
    look="the line that writes the reduced gradient: assign, do not add",
)
LOSS_MULTIPLIED_BY_WORLD_SIZE = Kind(
    "loss-multiplied-by-world-size",
    "The loss is multiplied by the world size, {world_size}, before anything is reduced.",
    look="factors of the loss before backward",
    world_size=int,
)
LOSS_DIVIDED_BY_WORLD_SIZE = Kind(
    "loss-divided-by-world-size",
    "The loss is divided by the world size, {world_size}, before anything is reduced.",
    look="factors of the loss before backward",
    world_size=int,
)
DIVIDED_IN_EVERY_BACKWARD = Kind(
    "divided-in-every-backward",
    "Each backward inside no_sync divides the gradients accumulated so far by the world size, {world_size}.",
    because="Gradients of the first backward are divided twice after the second.",
    look="gradient hooks that divide before the reduction, and also run where nothing is reduced",
    world_size=int,
)

SHARED_PART_REPLACES = Kind(
    "shared-part-replaces",
    "The part of layer {layer} replaces those of the other layers that share the parameter.",
    because="The parameter is shared by {layers}.",
    look="the line that stores a shared parameter's gradient: add the parts",
    layer=str,
    layers=tuple[str, ...],
)
SHARED_PART_MISSING = Kind(
    "shared-part-missing",
    "The part of layer {layer} is missing in a parameter that {layers} share.",
    layer=str,
    layers=tuple[str, ...],
)
SHARED_PART_NOT_REDUCED = Kind(
    "shared-part-not-reduced",
    "A shared parameter is reduced before the part of layer {layer} is added.",
    because="The parameter is shared by {layers}; that part is this rank's own.",
    look="the hook of a shared parameter: it must reduce after the last of its uses",
    layer=str,
    layers=tuple[str, ...],
)

OTHER_PARAMETERS_GRADIENT = Kind(
    "other-parameters-gradient",
    "The gradient is that of {parameter}: parameters are confused.",
    look="the order and the layout of parameters on each rank, and buffers that two of them share while both are under way",
    parameter=str,
)
RANK_SENDS_OTHER_PARAMETER = Kind(
    "rank-sends-other-parameter",
    "Rank {rank} sends the gradient of {parameter}: its order of parameters differs.",
    look="the order and the layout of parameters on each rank, and buffers that two of them share while both are under way",
    rank=int,
    parameter=str,
)
OTHER_PARAMETER_ADDED = Kind(
    "other-parameter-added",
    "The gradient of {parameter} is added to this one: parameters are confused.",
    look="offsets or keys of parameters in the buffer",
    parameter=str,
)
RANK_SENDS_OTHER_PIECE = Kind(
    "rank-sends-other-piece",
    "Rank {rank} sends another piece of its flat buffer: layouts differ between ranks.",
    look="the order of parameters in buckets, rank by rank",
    rank=int,
)
UNPACKED_IN_OTHER_ORDER = Kind(
    "unpacked-in-other-order",
    "The flat buffer is packed in one order and unpacked in another.",
    look="the two loops over parameters that pack and unpack: the same list for both",
)

RANKS_WITHOUT_SAMPLES_LEFT_OUT = Kind(
    "ranks-without-samples-left-out",
    "Ranks without samples are left out of the mean; all ranks should count equally.",
    look="the divisor: the world size, whatever the number of samples",
)
UNUSED_RANKS_LEFT_OUT = Kind(
    "unused-ranks-left-out",
    "{ranks:Rank #, whose gradient is zero here, is|Ranks #, whose gradients are zero here, are} left out of the mean.",
    look="the divisor: the world size, and zeros for ranks without a gradient",
    ranks=tuple[int, ...],
)
REDUCED_ONLY_IF_ALL_USE = Kind(
    "reduced-only-if-all-use",
    "A gradient is reduced only if all ranks have one: {ranks:rank # has|ranks # have} none, and others keep their own.",
    look="the flags of used parameters: any rank's use must count, and ranks without a gradient need the mean, too",
    ranks=tuple[int, ...],
)
RANKS_MISSING = Kind(
    "ranks-missing",
    "{ranks:The part of rank # is missing, as if it were|The parts of ranks # are missing, as if they were} zero.",
    look="the sum over ranks, and handles of asynchronous reductions: each must be waited for",
    ranks=tuple[int, ...],
)
MEAN_OF_SOME_RANKS = Kind(
    "mean-of-some-ranks", "The value is the mean of {ranks:rank #|ranks #} only.", ranks=tuple[int, ...]
)
GROUPS_WEIGH_EQUALLY = Kind(
    "groups-weigh-equally",
    "Groups of ranks weigh equally although their sizes differ.",
    because="The value is the mean of the means of ranks {groups}.",
    look="a hierarchy of hosts: each host's part must count by its number of ranks",
    groups=tuple[str, ...],
)
ONE_RANKS_PART_ONLY = Kind(
    "one-ranks-part-only",
    "The value is rank {rank}'s part alone, divided by the world size.",
    because="The other ranks' parts did not arrive here, or were not waited for.",
    look=EVERY_HANDLE,
    rank=int,
)
OTHER_RANKS_VALUE = Kind(
    "other-ranks-value",
    "The value is rank {rank}'s own, not that of all ranks together.",
    look="the result of the reduction, which must replace the rank's own value",
    rank=int,
)
EXTREME_NOT_MEAN = Kind(
    "extreme-not-mean",
    "Each element is the {extreme} of all ranks', not their mean.",
    look="the reduction operation that the all-reduce gets",
    extreme=str,
)
PRODUCT_NOT_MEAN = Kind(
    "product-not-mean",
    "Each element is the product of all ranks', not their mean.",
    look="the reduction operation that the all-reduce gets",
)

UNUSED_RANK_SENDS_OLD_MEAN = Kind(
    "unused-rank-sends-old-mean",
    "{ranks:Rank #, without a gradient, sends|Ranks #, without gradients, send} the mean that an earlier backward left.",
    because="A buffer is not cleared, or zero_grad does not reset it.",
    look="the buffer of a parameter without gradient: zeros before the reduction",
    ranks=tuple[int, ...],
)
UNUSED_RANK_SENDS_OLD = Kind(
    "unused-rank-sends-old",
    "{ranks:Rank #, without a gradient, sends its gradient|Ranks #, without gradients, send their gradients} of "
    "{backwards} backwards earlier.",
    because="A buffer, or one of several in turn, is not cleared.",
    look="the buffer of a parameter without gradient: zeros before the reduction",
    ranks=tuple[int, ...],
    backwards=int,
)
RANK_SENDS_OLD = Kind(
    "rank-sends-old",
    "{ranks:Rank # sends its gradient|Ranks # send their gradients} of an earlier backward: a buffer is not cleared.",
    look="the buffer of the ranks named: cleared, or filled anew, before each reduction",
    ranks=tuple[int, ...],
)
STALE = Kind(
    "stale-gradient",
    "The gradient is that of the previous backward: reduced too early, or one step late.",
    look="when the gradient is copied into the buffer, and when the result is copied back",
)
NOT_RESET = Kind(
    "gradient-not-reset",
    "The gradient still contains the previous one: zero_grad does not reset it.",
    look="zero_grad: whether it reaches the memory that holds this gradient",
)
REDUCED_AGAIN = Kind(
    "reduced-again",
    "Gradients of earlier backwards, already reduced, are part of the last reduction again.",
    because="They count {times:g} times.",
    look="the memory that is reduced: only what came since the last reduction",
    times=float,
)
SOME_RANKS_NOT_RESET = Kind(
    "some-ranks-not-reset",
    "{count} of {world_size} ranks keep the previous gradient: their zero_grad does not reset it.",
    count=int,
    world_size=int,
)
LAST_MICRO_BATCH_ONLY = Kind(
    "last-micro-batch-only",
    "Only the last micro-batch counts: gradients accumulated before it are lost.",
    look="where a micro-batch's gradient is stored: it must be added to the earlier ones, not assigned",
)
FIRST_MICRO_BATCH_MISSING = Kind(
    "first-micro-batch-missing",
    "The first micro-batch is missing: gradients accumulated before are lost.",
    look="what happens to accumulated gradients at the first synchronised backward",
)
LAST_MICRO_BATCH_MISSING = Kind(
    "last-micro-batch-missing",
    "The last micro-batch is missing: the gradient is read before it is added.",
    look="the hook: whether it runs before or after the gradient is accumulated",
)
DIVIDED_BY_MICRO_BATCHES = Kind(
    "divided-by-micro-batches",
    "The gradient is divided by the number of micro-batches, {count}.",
    look="divisions by the number of micro-batches: only the caller's loss may have one",
    count=int,
)
ACCUMULATED_NOT_REDUCED = Kind(
    "accumulated-not-reduced",
    "Only the last micro-batch is reduced: gradients accumulated before it stay local.",
    look="the memory that the last backward reduces: all that was accumulated, not its own gradient alone",
)
LAST_BACKWARD_NOT_REDUCED = Kind(
    "last-backward-not-reduced",
    "Gradients of earlier backwards are reduced; those of the last backward are added and stay local.",
    look="a flag of no_sync that is read in the next backward, and marks of gradients that are reduced already",
)
SYNCHRONISED_INSIDE_NO_SYNC = Kind(
    "synchronised-inside-no-sync",
    "The gradient is the mean over all ranks although no_sync is on.",
    look="the condition on no_sync in the hook, or at the end of backward",
)
EQUAL_WEIGHTS_NOT_BY_SIZE = Kind(
    "equal-weights-not-by-size",
    "Ranks weigh equally; they should be weighted by batch sizes.",
    look="the divisor: the number of samples of all ranks",
)
WEIGHTED_BY_SIZE = Kind(
    "weighted-by-size",
    "Ranks are weighted by batch sizes; they should weigh equally.",
    look="the divisor: the world size",
)

RELU_AT_ZERO = Kind("relu-at-zero", "relu has the derivative {slope:g} at 0 here; ModelSpec's has 0.", slope=float)
REPEATED_ID_COUNTS_ONCE = Kind(
    "repeated-id-counts-once",
    "Of an id that a batch has several times, only the last sample counts.",
    because="gradient[ids] += rows keeps one of several rows.",
    look="np.add.at, or a sum by id",
)
ID_TAKEN_FOR_PADDING = Kind(
    "id-taken-for-padding", "The row of the {which} id does not learn: the id is treated as padding.", which=str
)

MOVED_WITHOUT_GRADIENT = Kind(
    "moved-without-gradient",
    "The step moves a parameter without a gradient, by its {by}.",
    because="The parameter is frozen, or no rank used it.",
    look="the optimizer's update of parameters whose gradient is None",
    by=str,
)
SHOULD_NOT_MOVE = Kind(
    "moved-though-unused",
    "The parameter moved, although it was frozen or unused in every step since.",
)

LOSS_AVERAGED = Kind(
    "loss-averaged",
    "The loss is the mean over all ranks; backward returns this rank's own.",
    look="backward's return value: the loss before any reduction",
)
LOSS_SUMMED = Kind(
    "loss-summed",
    "The loss is the sum over all ranks; backward returns this rank's own.",
    look="backward's return value: the loss before any reduction",
)
LOSS_SUMMED_OVER_SAMPLES = Kind(
    "loss-summed-over-samples",
    "The loss is the sum over the rank's samples, not their mean.",
    look="the reduction of the loss over the batch",
)
AT_OWN_INITIAL = Kind(
    "gradient-at-own-initial-values",
    "The gradient is that at each rank's own initial {values}: construction does not broadcast rank 0's.",
    look="the broadcast in the construction",
    values=str,
)
SUMMED_AT_OWN_INITIAL = Kind(
    "gradient-summed-at-own-initial-values",
    "Gradients at each rank's own initial {values} are summed, not averaged: construction does not broadcast rank 0's.",
    look="the broadcast in the construction, and the division by the world size after the all-reduce",
    values=str,
)

LOSS_OF_OWN_INITIAL = Kind(
    "loss-of-own-initial-values",
    "The loss is that of this rank's own initial {values}: construction does not broadcast rank 0's.",
    look="the broadcast in the construction: all parameters and buffers, from rank 0",
    values=str,
)
LOSS_OF_MEAN_INITIAL = Kind(
    "loss-of-averaged-initial-values",
    "Construction averages the ranks' initial {values}; it should broadcast rank 0's.",
    look="the collective in the construction: a broadcast from rank 0",
    values=str,
)
LOSS_OF_UNLOADED = Kind(
    "loss-of-unloaded-values",
    "The loss is that of the new replica's initial {values}: load_state does not reach forward.",
    because="They are not loaded, or forward uses a copy that was made before.",
    look="load_state(): it must write into the memory that forward reads",
    values=str,
)
PART_OF_LARGE_TENSOR_LOCAL = Kind(
    "part-of-large-tensor-not-reduced",
    "Elements {first} to {last} of a tensor of {elements} keep the rank's own gradient.",
    because="A tensor that is larger than a bucket may be reduced, or copied back, in part only.",
    look="the size of buckets, and tensors that exceed it",
    first=int,
    last=int,
    elements=int,
)
PART_OF_LARGE_TENSOR_ZERO = Kind(
    "part-of-large-tensor-zero",
    "Elements {first} to {last} of a tensor of {elements} are zero.",
    because="A tensor that is larger than a bucket may be copied in part only.",
    look="the size of buckets, and tensors that exceed it",
    first=int,
    last=int,
    elements=int,
)
FLOAT16_SUM_OVERFLOWS = Kind(
    "float16-sum-overflows",
    "The sum over ranks overflows in float16 before it is divided.",
    because="Each rank's gradient and the mean fit float16, which ends at 65504; the sum of two of them does not.",
    look="the division: before the sum, or after a sum in a wider dtype",
)
OPTION_VALUE_BREAKS = Kind(
    "option-value-breaks-gradients",
    "make_replica() accepts {option} = {value:g}, but cannot work with it.",
    because="Zero, negative or huge values need an error at construction, or a meaning.",
    look="the range of {option} that make_replica() checks",
    option=str,
    value=float,
)
OPTION_REFUSED_BY_SOME = Kind(
    "option-refused-by-some",
    "make_replica() refuses {option} = {value:g} on {ranks:rank #|ranks #}, but not on the others.",
    option=str,
    value=float,
    ranks=tuple[int, ...],
)
