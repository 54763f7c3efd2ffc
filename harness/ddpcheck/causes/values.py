"""Why an array is wrong, told by its values alone."""

from .cause import Kind

EVERY_HANDLE = "handles of asynchronous reductions, and the last bucket: each must be waited for"
"""Where to look for a part that arrives too late."""

SUMMED_NOT_AVERAGED = Kind(
    "summed-not-averaged",
    "Values are summed over the ranks, not averaged.",
    because="They are exactly {world_size} x too large at world size {world_size}.",
    look="the division by the world size after the all-reduce",
    world_size=int,
)
DIVIDED_TOO_OFTEN = Kind(
    "divided-too-often",
    "Values are divided by the world size once too often.",
    because="They are exactly {world_size} x too small at world size {world_size}.",
    look="a reduction that averages already, before another division",
    world_size=int,
)
MULTIPLIED_NOT_AVERAGED = Kind(
    "multiplied-not-averaged",
    "Values are multiplied by the world size and never averaged.",
    because="They are exactly {world_size}^2 x too large at world size {world_size}.",
    look="the operator that scales the sum: division by the world size",
    world_size=int,
)
DIVIDED_TWICE_TOO_OFTEN = Kind(
    "divided-twice-too-often",
    "Values are divided by the world size twice too often.",
    because="They are exactly {world_size}^2 x too small at world size {world_size}.",
    look="the divisions by the world size: keep one",
    world_size=int,
)
DIVIDED_BY_ELEMENTS = Kind(
    "divided-by-elements",
    "The mean divides by the number of elements, {size}, not by the {world_size:# rank|# ranks}.",
    look="the divisor of the mean: np.mean() divides by the number of elements",
    size=int,
    world_size=int,
)
WRONG_SIGN = Kind("wrong-sign", "The sign is wrong.")
WRONG_DIVISOR = Kind(
    "wrong-divisor",
    "Values are divided by {divisor}, not by the {world_size} ranks.",
    because="Every element is {factor:.6g} x its expected value.",
    look="the divisor of the mean",
    divisor=int,
    world_size=int,
    factor=float,
)
LOSS_SCALE_KEPT = Kind(
    "loss-scale-kept",
    "A loss scale is not removed, or is removed once too often.",
    because="Every element is {factor:.6g} x its expected value: a power of two.",
    look="where the loss scale is removed: once, before the step",
    factor=float,
)
WRONG_FACTOR = Kind(
    "wrong-factor",
    "A wrong factor scales every element alike.",
    because="Every element is {factor:.6g} x its expected value.",
    factor=float,
)
CONSTANT_ADDED = Kind(
    "constant-added",
    "Memory is not cleared first: every element is {offset:g} off.",
    because="An accumulator, or the memory of the result, still held an earlier value.",
    look="the memory of the accumulator: set to zero, or written first",
    offset=float,
)

NOT_REDUCED = Kind(
    "not-reduced",
    "The value is this rank's own: it is not reduced.",
    because="All elements equal this rank's local value exactly.",
    look="whether the collective is called, waited for, and given the memory that holds this value now; "
    "zero_grad(set_to_none=True) drops gradients that are views of a flat buffer",
)
PART_NOT_REDUCED = Kind(
    "part-not-reduced",
    "Part of the value is this rank's own: that part is never reduced.",
    look="the last piece or bucket, and how sizes are rounded",
)
RANKS_WEIGHTED = Kind(
    "ranks-weighted",
    "Ranks count with the wrong weights.",
    because="By rank, the weights are {weights:.3g}; they should be {expected:.3g}.",
    look="the factors of the ranks' parts",
    weights=tuple[float, ...],
    expected=tuple[float, ...],
)
WEIGHTED_BY_OTHER_SIZES = Kind(
    "weighted-by-other-sizes",
    "Ranks are weighted by the sizes of other batches.",
    because="By rank, the weights are {weights:.3g}; they should be {expected:.3g}.",
    look="the batch sizes by which ranks are weighted: those of this batch",
    weights=tuple[float, ...],
    expected=tuple[float, ...],
)
DIVIDED_WHILE_SENT = Kind(
    "divided-while-sent",
    "The buffer is divided in place while it is still being sent.",
    because="By rank, the weights are {weights:.3g}; they should be {expected:.3g}.",
    look="the in-place division: wait for the send first",
    weights=tuple[float, ...],
    expected=tuple[float, ...],
)
PART_DIVIDED_AGAIN = Kind(
    "part-divided-again",
    "Part of the value is divided by the world size, {world_size}, once too often.",
    because="It is divided in place before its reduction has ended, or is in two buffers that are both divided.",
    look=EVERY_HANDLE,
    world_size=int,
)
PARTS_OF_RANKS_MISSING = Kind(
    "parts-of-ranks-missing",
    "Elements lack the parts of some ranks, different ranks in different places.",
    because="Each rank sends its largest elements only, or pieces are lost, or were not waited for.",
    look=EVERY_HANDLE,
)

NONFINITE = Kind(
    "unexpected-nonfinite",
    "Values are NaN or infinite: an overflow, or memory that was never written.",
    look="buffers that are returned to the caller, or read, too early",
)
NAN_LOST = Kind("nan-lost", "A NaN is lost: a comparison drops it, depending on the rank that has it.")
OVERFLOW_FLOAT16 = Kind(
    "overflow-float16",
    "The largest elements overflow to infinity, as in float16.",
    because="The largest number of float16 is 65504.",
)
PARTS_CLAMPED = Kind(
    "parts-clamped",
    "Every rank's part is clamped at {limit:g} before the mean.",
    because="A limit, or a dtype that ends there, cuts them off.",
    limit=float,
)
CLAMPED = Kind(
    "clamped",
    "Values are clamped at {limit:g}, or pass through a dtype that ends there.",
    look="clip() or clamp() calls, and casts to a dtype that ends there",
    limit=float,
)
FLUSHED_TO_ZERO = Kind(
    "flushed-to-zero",
    "The smallest values are zero: they are flushed, or left out as too small.",
)
ZERO = Kind(
    "never-written",
    "Values are zero: they are never written, or left out.",
    look="memory from np.empty() or torch.empty(), and the slices that are written",
)

FIXED_POINT = Kind(
    "fixed-point",
    "Values are rounded to multiples of {step:.3g}: a fixed point, scaled by a larger element of the same buffer.",
    because="Small elements then have fewer digits than large ones, unlike floats.",
    look="the scale of a whole bucket or buffer",
    step=float,
)
SENT_AS = Kind(
    "sent-as",
    "The array is sent as {dtype}.",
    because="A conversion of the expected array to {dtype} gives every bit.",
    look="conversions before and after the transport",
    dtype=str,
)
ROUNDED_AS = Kind(
    "rounded-as",
    "{rounded} rounded as in {dtype}.",
    because="That explains every bit of {given} values.",
    look="conversions before and after the reduction",
    rounded=str,
    dtype=str,
    given=str,
)
CUT_NOT_ROUNDED = Kind(
    "cut-not-rounded",
    "Values are cut to fewer bits, not rounded: all are nearer to zero.",
    because="Rounding to nearest makes about half of them larger. Over a training the cuts add up to smaller gradients.",
    look="the conversion to the smaller dtype: a shift of bits cuts, a cast rounds",
)
SENT_AS_INT8 = Kind(
    "sent-as-int8",
    "Values are sent as integers of 8 bits.",
    because="They are multiples of 1/127 of the largest element of {scaled_by}.",
    scaled_by=str,
)
WHOLE_NUMBERS = Kind(
    "rounded-to-whole-numbers",
    "Results are rounded {direction} to whole numbers.",
    because="{count} of {size} expected values have a fraction, and no value has one.",
    look="integer divisions, such as // for a mean, and conversions to integers",
    direction=str,
    count=int,
    size=int,
)
FEWER_BITS = Kind(
    "fewer-bits",
    "Values are computed or sent with fewer bits than {given}, as in {dtype}.",
    because="The relative error is {error:.1e}.",
    look="casts to {dtype} on the way into messages, of construction and of reductions, and in communication hooks",
    dtype=str,
    given=str,
    error=float,
)
INTEGERS_TRUNCATED = Kind(
    "integers-truncated",
    "Only the lowest {bits} bits of each integer arrive.",
    look="casts of integers to {bits} bits",
    bits=int,
)
INTEGERS_AS_FLOAT = Kind(
    "integers-as-float",
    "Integers are computed or sent as {dtype}.",
    because="Only integers of more than {bits} bits are wrong.",
    look="casts of integers to {dtype}",
    dtype=str,
    bits=int,
)
BITS_CHANGED = Kind(
    "bits-changed",
    "The bits of a copy changed: it went through arithmetic or a narrower dtype.",
)
LAST_BITS_WRONG = Kind(
    "last-bits-wrong",
    "The last bits differ: one rounding too many, or another order of additions.",
    because="{count} of {size} elements differ, by at most {ulp} ulp.",
    count=int,
    size=int,
    ulp=int,
)
LOW_RANK = Kind(
    "low-rank",
    "The matrix is a low-rank approximation, as PowerSGD compression makes it.",
    because="The matrix rank is {rank}; the expected matrix has rank {expected_rank}.",
    rank=int,
    expected_rank=int,
)

PERMUTED = Kind(
    "permuted",
    "All values are present, but in other places.",
    because="A layout is transposed or permuted, or blocks are in a wrong order.",
    look="transposes, views and orders of blocks on the way into the buffer and out of it",
)
SHIFTED = Kind(
    "shifted",
    "Elements of {part} are {distance} places away from their right places.",
    because="A buffer is filled again before it is sent, blocks are in a wrong order, or ranks cut them differently.",
    look="offsets of blocks, and buffers that are filled again before they are sent",
    part=str,
    distance=int,
)
REMAINDER_WRONG = Kind(
    "remainder-wrong",
    "Only the remainder of a division into {parts} parts is wrong.",
    look="the last piece, and how sizes are rounded",
    parts=int,
)
SEAMS_WRONG = Kind(
    "seams-wrong",
    "One element in {distance} is wrong, at the seams of pieces of {distance} elements.",
    because="The first is element {first}: pieces begin, end or overlap there.",
    look="the first and last index of each piece",
    distance=int,
    first=int,
)
TAIL_WRONG = Kind(
    "tail-wrong",
    "The array is right up to element {first} and wrong from there to the end.",
    because="Element {first} begins at byte {byte}. The last piece is left out, or a buffer ends there.",
    look="the last piece, and buffers of that size",
    first=int,
    byte=int,
)

SCALED_UPDATE = Kind(
    "scaled-update",
    "The update has the wrong size: another learning rate, or clipping by another norm.",
    because="The update is {share:.4g} x as long as expected.",
    look="the learning rate, and the norm by which clipping divides",
    share=float,
)
TINY_UPDATE = Kind(
    "tiny-update",
    "The update is about {shrunk:.0f} x too small: its gradient was scaled down.",
    because="The gradient is clipped while it still has the loss scale, or loses the loss scale twice.",
    look="the order: remove the loss scale once, then clip, then step",
    shrunk=float,
)
