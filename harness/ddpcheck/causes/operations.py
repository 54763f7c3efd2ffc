"""Why an operation raised, or returned a result that the contract does not allow: told by the Job's operations."""

from .cause import Kind

ROOT_NOT_FOUND = Kind(
    "root-not-found-in-group",
    "Root {root} is not found in group {group}.",
    because="A transport numbers ranks from 0 in each group, or the communicator belongs to another group.",
    root=int,
    group=tuple[int, ...],
)
SOURCE_IGNORED = Kind(
    "source-ignored",
    "recv() takes the first message to arrive, from ranks {sources}, not from the requested source.",
    sources=tuple[int, ...],
)
MESSAGES_OUT_OF_ORDER = Kind(
    "messages-out-of-order", "Messages overtake each other, or an earlier message was left in the queue."
)
EMPTY_ARRAY = Kind(
    "empty-array-not-handled",
    "Arrays without elements are not handled.",
    because="The number of messages or rows cannot be computed from a size of zero.",
    look="sizes of 0 in divisions, blocks and messages",
)
ZERO_DIMENSIONS = Kind(
    "scalar-array-not-handled",
    "Arrays without dimensions are not handled.",
    because="Such an array has no first dimension to cut or count; NumPy may make it one-dimensional.",
    look="array.shape[0] and len(array), which arrays without dimensions do not have",
)
NEW_DTYPE = Kind(
    "dtype-not-handled",
    "{dtype} is not handled in any shape: no earlier operation had this dtype.",
    certainty="possible",
    dtype=str,
)
FEW_SAMPLES = Kind(
    "few-samples-not-handled",
    "Fewer samples than ranks are not handled.",
    because='A sampler that refuses them on every rank promises few_samples="refused".',
    look="divisions and slices that take one sample for each rank for granted",
)
NO_SAMPLES = Kind(
    "no-samples-not-handled", "Rank {rank} has no samples, and its forward or backward pass needs some.", rank=int
)
IDLE_RANK_SKIPS = Kind(
    "idle-rank-skips-collectives",
    "{ranks:Rank # has no samples and skips|Ranks # have no samples and skip} "
    "collectives that the other ranks call, such as the buffer broadcast.",
    ranks=tuple[int, ...],
)
EVALUATION_COMMUNICATES = Kind(
    "evaluation-communicates",
    "The evaluation in operation {operation} communicates; its messages are mistaken for those of training.",
    because="{ranks:Rank #|Ranks #} evaluated alone.",
    operation=int,
    ranks=tuple[int, ...],
)
DROPPED_WINDOW_REMEMBERED = Kind(
    "dropped-window-remembered",
    "Operation {cleared} dropped what operation {backward} accumulated, but not its bookkeeping.",
    because="The backward noted, for example, which parameters were used, and was never synchronised.",
    backward=int,
    cleared=int,
)
MESSAGES_DIFFER_SINCE = Kind(
    "messages-differ-since",
    "The ranks' messages differ since operation {operation}, where they used different parameters.",
    because="If orders or layouts differ, gradients of different parameters are mixed up.",
    operation=int,
)
UNUSED_LEFT_OUT = Kind(
    "unused-left-out-of-message",
    "A parameter without gradient is left out of the message; the ranks use different parameters here.",
)
UNDEFINED_IN_TORCH = Kind(
    "undefined-gradient-in-torch",
    "torch's DistributedDataParallel reduces a gradient that it has not got: the error is torch's own.",
    because="It marks a parameter as used that has no gradient, after a window that was thrown away for example.",
    look="whether plain DistributedDataParallel raises the same: then no code around it is at fault",
)
GAVE_UP_WAITING = Kind(
    "gave-up-waiting",
    "Rank {rank} gave up waiting for rank {late}, which was {seconds:g} s late.",
    because="The implementation has its own time limit.",
    rank=int,
    late=int,
    seconds=float,
)
TAKES_ANOTHER_PATH = Kind(
    "takes-another-path",
    "{ranks:Rank #|Ranks #} completed the operation; rank {rank} takes a different path in it.",
    ranks=tuple[int, ...],
    rank=int,
)
OTHER_MESSAGE_RECEIVED = Kind(
    "other-message-received",
    "Rank {rank} received a partial message or another call's message; {ranks:rank #|ranks #} completed the operation.",
    because="Likely one rank makes an extra or a missing call.",
    ranks=tuple[int, ...],
    rank=int,
)
RUN_ENDED_BY_SOME = Kind(
    "run-ended-by-some-ranks",
    "{ranks:Rank #|Ranks #} ended the training run, while rank {rank} was in one more collective.",
    because="A condition around that collective may hold on some ranks only.",
    look="conditions on losses, best epochs and files in the frames of rank {rank}",
    certainty="possible",
    ranks=tuple[int, ...],
    rank=int,
)
BLOCK_OF_RANK = Kind(
    "block-cut-at-rank",
    "The block is chosen by rank {rank}, not by the rank's position {position} in the group.",
    rank=int,
    position=int,
)
NOT_CONVERTED_BACK = Kind(
    "result-not-converted-back",
    "The result is computed in {dtype}, and not converted back to {right_dtype}.",
    look="the end of the call: .astype({right_dtype})",
    dtype=str,
    right_dtype=str,
)
SHAPE_LOST = Kind(
    "shape-lost",
    "The result has all elements, but another shape: shape {shape} in place of {right_shape}.",
    because="The shape was lost in transit, or comes from another array.",
    look="the end of the call: .reshape() to the argument's shape",
    shape=tuple[int, ...],
    right_shape=tuple[int, ...],
)
