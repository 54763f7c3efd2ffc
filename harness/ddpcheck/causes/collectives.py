"""Why the result of a collective is wrong, or changes something that it should leave alone."""

from .cause import Kind

ARGUMENT_MUST_BE_WRITABLE = Kind(
    "argument-must-be-writable",
    "A read-only argument is used as if it could be written to.",
    because="Arrays from bytes, memory-mapped files and JAX are read-only.",
    look="where the argument is passed on: a copy, if the transport needs memory that it can write to",
)
SHORTENED_BY_CONTENT = Kind(
    "shortened-by-content",
    "Arrays that are mostly zeros, or one number, are compressed when sent, and not restored correctly.",
    certainty="possible",
)
PATH_BY_CONTENT = Kind(
    "path-by-content",
    "A rank whose array is mostly zeros, or one number, takes a different path from the others.",
    certainty="possible",
)
OTHER_DATATYPE = Kind(
    "other-datatype",
    "The bits of {dtype} are reduced as {reduced_as}: the transport is told another datatype.",
    look="the table from dtypes to the transport's datatypes",
    dtype=str,
    reduced_as=str,
)
ASYNCHRONOUS_CALL_WAITS = Kind(
    "asynchronous-call-waits",
    "The asynchronous call waits for other ranks and leaves nothing to wait() for.",
    because="Computation does not overlap, and ranks that start calls in different orders deadlock.",
    look="the asynchronous call: it must return a handle at once, and wait() must finish the work",
)
HANDLE_FORGOTTEN = Kind(
    "handle-forgotten",
    "A handle is forgotten after {others} other handles.",
    because="A handle number, a ring buffer or a cache of handles has room for fewer.",
    look="the container of handles: a handle stays in it until wait()",
    others=int,
)
WRITES_AT_START_OF_BASE = Kind(
    "writes-at-start-of-base",
    "The array is part of a larger one; the result is written at the start of the larger one.",
    look="the offset of the array in its base, which the receive buffer must keep",
)
EMPTY_GIVEN_TWICE = Kind("empty-given-twice", "empty() hands out memory again while part of its array is still in use.")
WORKS_IN_ARGUMENT = Kind(
    "works-in-argument",
    "The collective works in place on the caller's array; it needs a copy.",
    look="the first line that writes to the argument: it must work on a copy",
)
RESULT_ALIASES_ARGUMENT = Kind(
    "result-aliases-argument",
    "The result shares memory with the argument: a change to one changes the other.",
    look="the return value: it must be a new array, also where nothing is to be sent",
)
RESULT_READ_ONLY = Kind(
    "result-read-only",
    "The result is read-only: a view of bytes, of another framework's array, or a scalar.",
    look="np.array(), which copies it",
)
RESULT_BUFFER_REUSED = Kind(
    "result-buffer-reused",
    "The result is a view of an internal buffer that is reused.",
    look="the return value: it must be a copy of the internal buffer",
)
SIGN_OF_ZERO_LOST = Kind(
    "sign-of-zero-lost",
    "The sign of zero is lost: values go through arithmetic, such as a sum with zeros.",
)
LAYOUTS_DIFFER = Kind(
    "layouts-differ-between-ranks",
    "The ranks' arrays have different memory layouts, and each rank sends in its own layout.",
    look="the line that sends the array: np.ascontiguousarray(array) first",
    certainty="possible",
)
STRIDE_IGNORED = Kind(
    "stride-ignored",
    "Rows of a wider array are read as if they were contiguous.",
    look="the line that reads the array's memory: np.ascontiguousarray(array) first",
    certainty="possible",
)
ZERO_STRIDE_IGNORED = Kind(
    "zero-stride-ignored",
    "A stride of zero, which repeats one row, is ignored.",
    look="the line that reads the array's memory: np.ascontiguousarray(array) first",
    certainty="possible",
)
BARRIER_GAVE_UP = Kind(
    "barrier-gave-up",
    "The barrier gives up after {seconds:.1f} s: the implementation has its own time limit.",
    certainty="possible",
    seconds=float,
)
BARRIER_WAITS_FOR_SOME = Kind(
    "barrier-waits-for-some",
    "The barrier waits for {ranks:rank #|ranks #}, but not for rank {late}.",
    because="Rank {rank} waited in earlier barriers of the Job.",
    look="the rank that lets the others go: it must first hear from all of them",
    ranks=tuple[int, ...],
    late=int,
    rank=int,
)
BARRIER_DOES_NOT_BLOCK = Kind(
    "barrier-does-not-block",
    "The barrier does not block, or is paired with another barrier.",
    look="the messages of the barrier: each rank must hear, directly or not, from every other rank",
)
SENT_BY_COLUMNS = Kind(
    "sent-by-columns",
    "The array is sent in memory order, column by column.",
    look="the line that sends the array: np.ascontiguousarray(array) first",
)
RECEIVED_BY_ROWS = Kind(
    "received-by-rows",
    "The array is written row by row, although its memory is column-major.",
    look="the line that fills the result: receive into contiguous memory, then assign",
)
REVERSED_IGNORED = Kind(
    "reversed-rows-ignored",
    "The array is sent in memory order, although its rows are reversed.",
    look="the line that sends the array: np.ascontiguousarray(array) first",
)
WRONG_SENDER = Kind(
    "wrong-sender",
    "The array comes from rank {rank}, the wrong sender.",
    look="the rank or tag by which the receiver selects a message",
    rank=int,
)
MESSAGES_OVERTAKE = Kind(
    "messages-overtake",
    "Rank {rank} sent this array in operation {operation}: messages overtake each other.",
    look="tags or numbers of messages, and connections on which order is kept",
    rank=int,
    operation=int,
)
READ_AFTER_RETURN = Kind(
    "read-after-return",
    "The argument is read after {call} returned, when the caller had already overwritten it.",
    look="the non-blocking send of the argument: wait for it, or send a copy",
    call=str,
)
NOTHING_RECEIVED = Kind(
    "nothing-received",
    "The receive buffer is untouched: nothing arrives, or it goes to a copy.",
    look="the receive buffer: a copy of the argument, such as that of reshape() or astype(), is not the result",
)

FIRST_RESULT_AGAIN = Kind(
    "first-result-again",
    "The result is that of the first call: its array is cached by address and sent again.",
    look="the cache, and its key: an address or id() comes again once an array is freed",
)
EARLIER_RESULT = Kind("earlier-result", "The result belongs to a call {calls} calls earlier.", calls=int)
OTHER_RESULT = Kind("no-known-result", "The result belongs to no other call.", certainty="possible")
CALL_COUNTER_WRAPS = Kind(
    "call-counter-wraps",
    "The {calls} earlier calls were right: a counter of calls, tags or handles wraps.",
    certainty="possible",
    calls=int,
)

OVERFLOWS_BEFORE_DIVISION = Kind(
    "overflows-before-division",
    "The sum is rounded to float16 before the division, and exceeds its range.",
    because="The largest number of float16 is 65504; the mean stays below.",
    look="the division: before the sum, or after a sum in a wider dtype",
)
OVERFLOWS_ON_THE_WAY = Kind(
    "overflows-on-the-way",
    "A partial sum is rounded to float16 and exceeds its range.",
    look="the dtype of partial sums",
)
TINY_DIVIDED_FIRST = Kind("tiny-divided-first", "Every rank divides before the sum: tiny values are rounded to zero.")
SUBNORMALS_FLUSHED = Kind("subnormals-flushed", "Values below the smallest normal number are treated as zero.")
CACHED_BY_ARRAY = Kind(
    "cached-by-array",
    "State is cached by array identity or address and reused for another call.",
    because="Calls with separate arrays are right.",
    look="the key of the cached state: an address or id() comes again once an array is freed",
)

ROOT_IS_A_RANK = Kind(
    "root-is-a-rank",
    "The root's number is a rank, not a position in the group.",
    look="the translation between ranks and positions in the group",
    certainty="possible",
)
NON_ROOT_TAKES_PART = Kind(
    "non-root-takes-part",
    "Values of ranks other than the root take part, or one of them is used as the root.",
)
BROADCAST_NOT_RECEIVED = Kind(
    "broadcast-not-received",
    "The result is a non-root rank's array: wrong root, or nothing is received.",
    look="the branch of ranks that are not the root",
)
REDUCTION_IGNORED = Kind(
    "reduction-ignored",
    "The result is the sum: the requested reduction is not passed on.",
    look="the argument for the reduction, and its way to the transport",
)
OTHER_RANKS_BLOCK = Kind("other-ranks-block", "The result is the block of rank {rank}.", rank=int)
INFINITY_BECOMES_NAN = Kind(
    "infinity-becomes-nan",
    "Infinities become NaN: they are subtracted from each other, multiplied by 0, or replaced.",
    because="A running mean or a compensated sum has this effect.",
)
RESULTS_SHARE_MEMORY = Kind(
    "results-share-memory",
    "The array is the result of operation {operation}, overwritten since: two results share memory.",
    because="Or a non-blocking send was not waited for before its buffer was reused.",
    look="memory of results and of sends: each call needs its own until it is waited for",
    operation=int,
)
RESULT_SENT_AFTER_RETURN = Kind(
    "result-sent-after-return",
    "Another rank's result is read after its call returned, when the caller had already overwritten it.",
    because="A non-blocking send was not waited for before its buffer was reused.",
    look="sends without a wait, such as Isend(), and memory that ranks or calls share",
)
RESULTS_MIXED_UP = Kind(
    "results-mixed-up",
    "The result is that of operation {operation}: results are mixed up.",
    look="what connects a result with its call: a number or a tag",
    operation=int,
)
RESULTS_MIXED_UP_AS_OTHER_DTYPE = Kind(
    "results-mixed-up-as-other-dtype",
    "The bits of operation {operation}'s result are read as {dtype}: results are mixed up.",
    operation=int,
    dtype=str,
)
ROWS_IN_WRONG_ORDER = Kind(
    "rows-in-wrong-order",
    "The ranks' arrays are in the order of ranks {order}.",
    look="the place of each received array: that of its sender's position",
    order=tuple[int, ...],
)
ONE_ROW_FOR_ALL = Kind(
    "one-row-for-all",
    "Every row is the array of rank {rank}: one array is used for all rows.",
    look="the list of received arrays: each entry must be a new array",
    rank=int,
)
WAIT_RETURNS_EARLY = Kind(
    "wait-returns-early",
    "wait() returns this rank's own array: it does not wait for the result, or nothing is reduced.",
    look="what wait() waits for, and its time limit",
)
COPY_REDUCED = Kind(
    "copy-reduced-in-place",
    "A contiguous copy of the array is reduced and thrown away: the array itself stays as it was.",
    look="calls that make arrays contiguous before a reduction in place",
)
ROW_OF_OTHER_RANK = Kind(
    "row-of-other-rank",
    "Row {row} is the array of rank {rank}, not that of rank {due}: offsets of rows are wrong.",
    look="the offsets of rows",
    row=int,
    rank=int,
    due=int,
)
PART_OF_OTHER_CALL = Kind(
    "part-of-other-call",
    "Rank {rank}'s part comes from operation {operation}: calls or buffers are mixed up.",
    rank=int,
    operation=int,
)
PART_OF_OTHER_GROUP = Kind(
    "part-of-other-group",
    "Rank {rank}'s part comes from operation {operation}, in group {group}: groups are mixed up.",
    look="the tag or communicator of each group",
    rank=int,
    operation=int,
    group=tuple[int, ...],
)
WRONG_DIVISOR_OF_SUM = Kind(
    "sum-divided-by-other-number",
    "The sum is divided by {divisor}, not by the {world_size} ranks.",
    look="the divisor of the mean",
    divisor=int,
    world_size=int,
)
ADDED_NOT_REDUCED = Kind(
    "added-not-reduced",
    "The values of {ranks:rank #|ranks #} are summed: the requested reduction is not passed on everywhere.",
    ranks=tuple[int, ...],
)
BLOCK_CUT_WRONG = Kind(
    "block-cut-wrong",
    "The block begins at element {first} of the reduction, not at {expected}.",
    look="the first element of each rank's block, if the ranks do not divide the elements",
    first=int,
    expected=int,
)
BLOCK_ALIGNED = Kind(
    "block-aligned",
    "The block begins at element {first} of the reduction, not at {expected}: its offset is rounded.",
    because="Element {first} is at a multiple of {unit}.",
    look="offsets and sizes that are rounded up for alignment; both sides must use the size before the rounding",
    first=int,
    expected=int,
    unit=int,
)
OPPOSITE_EXTREME = Kind(
    "opposite-extreme",
    "The result is the opposite extreme: the comparison is reversed.",
    look="the comparison, or the table from reductions to the transport's operations",
)
ZERO_LEFT_OUT_OF_PRODUCT = Kind("zero-left-out-of-product", "A rank that has a zero is left out of the product.")
SUM_AS_FLOAT32 = Kind(
    "summed-as-float32", "The sum is computed in float32, which cannot hold it.", look="the dtype of the accumulator"
)
DIVIDED_BY_SIZE_OF_ARRAY = Kind(
    "sum-divided-by-elements",
    "The sum is divided by the number of elements, not by that of ranks.",
    look="the divisor of the mean: np.mean() divides by the number of elements",
)
DIVIDED_BY_WORLD = Kind(
    "divided-by-world-size",
    "The sum is divided by the world size, not by the size of the group.",
    look="the divisor of a mean in a group: the size of the group",
)
GROUP_IGNORED = Kind(
    "group-ignored",
    "The result is over all ranks, not over the group.",
    look="the group argument, and its way to the transport",
)
GROUP_KEPT = Kind(
    "group-kept",
    "A {call} of all ranks runs in the group of an earlier call: the group stays in use.",
    because="The same call is right if no call in a group comes before it.",
    look="attributes that a call in a group sets, and a call without a group reads",
    call=str,
)
RANK_COUNTED_TWICE = Kind(
    "rank-counted-twice",
    "The values of rank {rank} count twice.",
    look="the loop that adds up: each step must pass on what it received, not a total that holds other ranks' values",
    rank=int,
)
RUNNING_MEAN = Kind(
    "running-mean",
    "Each rank's values are averaged with the mean so far: the last rank counts half.",
    look="the formula of the mean: sum first, then divide once",
)
MEAN_OF_UNEVEN_MEANS = Kind(
    "mean-of-uneven-means",
    "The result is the mean of two means of unequal numbers of ranks.",
    look="the tree of partial means: pass on sums, and divide once at the end",
)
RANK_LEFT_OUT = Kind(
    "rank-left-out",
    "The values of rank {rank} are missing: read before they arrive, or lost.",
    look="the number of rounds, and whether each received array is added",
    rank=int,
)
BLOCKS_GATHERED_EARLY = Kind(
    "blocks-gathered-early",
    "Blocks are gathered before all ranks have added their parts: each holds those of {added:# rank|# ranks} of {world_size}.",
    look="the block that each rank sends first in the all-gather: the one that it has completed",
    added=int,
    world_size=int,
)
RECEIVED_OVERWRITES = Kind(
    "received-overwrites-unsent",
    "Rank {twice} counts twice and rank {lost} not at all: data received overwrites data to be added.",
    look="the receive buffer: other memory than that which is still to be sent or added",
    twice=int,
    lost=int,
)
STARTS_FROM = Kind(
    "accumulator-starts-from",
    "The accumulator starts from {start}, which takes part in the comparison.",
    start=str,
)
INTEGERS_SATURATE = Kind(
    "integers-saturate", "Overflowing integers saturate at the limits of the dtype; they should wrap."
)
INTEGERS_COMPUTED_AS = Kind(
    "integers-computed-as-float",
    "Integers are computed as {dtype}, which has room for {bits} bits only.",
    look="the dtype of the accumulator",
    dtype=str,
    bits=int,
)
UNSIGNED_AS_SIGNED = Kind("unsigned-as-signed", "Unsigned integers are compared as signed ones.")
EXTREME_BY_NEGATION = Kind(
    "extreme-by-negation", "The extreme is found by negation: the lowest {dtype} has no counterpart.", dtype=str
)
PRODUCT_BY_LOGARITHMS = Kind(
    "product-by-logarithms", "The product is exp of a sum of logarithms: wrong for negative numbers, and rounded."
)
LATE_RANK_MISSED = Kind(
    "late-rank-missed",
    "Rank {rank} came {seconds:g} s late, and is not waited for.",
    look="time limits, and conditions on messages that have already come",
    rank=int,
    seconds=float,
)
HANDLE_NOT_AWAITED = Kind(
    "handle-not-awaited",
    "Nothing awaits the asynchronous {operation} at {line}.",
    because="Its result may be used while it still runs: whether it is right depends on time.",
    look="{line}: keep the handle of each call, and call wait() on it before its tensor is used",
    certainty="certain",
    operation=str,
    line=str,
)
CHANGED_IN_FLIGHT = Kind(
    "tensor-changed-in-flight",
    "The tensor of the asynchronous {operation} at {line} is changed before wait(): seen at {wait}.",
    because="The collective may read or write it before the change, or after: whether it is right depends on time.",
    look="what writes to the tensor: it belongs behind wait(), or needs memory of its own",
    certainty="certain",
    operation=str,
    line=str,
    wait=str,
)
