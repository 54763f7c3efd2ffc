"""Why more bytes are sent than needed, or counts() differs from the bytes sent."""

from .cause import Kind
from .values import EVERY_HANDLE

EVERYTHING_THROUGH_ONE_RANK = Kind(
    "everything-through-one-rank",
    "All data pass through one rank, which sends the whole result to each other rank.",
    look="the algorithm: a ring, or reduce-scatter and all-gather, for large arrays",
)
SENT_TWICE = Kind(
    "sent-twice",
    "Everything is sent twice, or in a dtype twice as wide.",
    look="the number of collectives for each gradient, and the dtype in which it is sent",
)
RING_SENDS_WHOLE = Kind(
    "ring-sends-whole-array",
    "Every step of the ring sends the whole array, not its share.",
    look="the ring: world_size blocks, one of them in each step",
)
WHOLE_ARRAY_TO_ALL = Kind(
    "whole-array-to-all",
    "Every rank sends its whole array to every other one.",
    look="the algorithm: a ring, or reduce-scatter and all-gather, for large arrays",
)
MORE_THAN_LEAST = Kind(
    "more-than-least", "The ranks send {times:.3g} x the least number of bytes.", certainty="possible", times=float
)
REDUCED_INSIDE_NO_SYNC = Kind(
    "reduced-inside-no-sync",
    "Gradients are reduced inside no_sync as well, and the result is thrown away.",
    look="the condition on no_sync: before the collective, not after it",
)
SENDS_INSIDE_NO_SYNC = Kind(
    "sends-inside-no-sync",
    "Data of the size of the gradients are sent inside no_sync, such as sharded parameters.",
    because="An implementation that gathers parameters in every forward does not promise no_sync.",
)
SENT_AFTER_BACKWARD = Kind(
    "sent-after-backward",
    "Backward ends before its gradients are sent: it does not wait for its reductions.",
    because="Fewer bytes were sent by the end of synchronised backwards than their gradients need; the rest came later.",
    look=EVERY_HANDLE,
)
REDUCED_IN_STEP = Kind(
    "reduced-in-step",
    "Gradients are reduced in step(), not in backward(): until then gradients() and clip() have local ones.",
    because="No rank sends a byte in the backward, and all ranks do in the step after it.",
    look="the end of backward(), at which gradients must be synchronised",
)
NOT_COUNTED = Kind(
    "sending-not-counted",
    "counts() does not count this way of sending.",
    look="the code that sends: count bytes at the one place through which all sending goes",
)
PARTLY_COUNTED = Kind("sending-partly-counted", "counts() leaves out part of the bytes.")
CALL_NOT_COUNTED = Kind(
    "call-not-counted",
    "counts() does not count this kind of call.",
    look="the code that sends: count bytes at the one place through which all sending goes",
)
MESSAGES_NOT_COUNTED = Kind("messages-not-counted", "counts() does not count the messages of this way of sending.")
COUNTS_OWN_SENDS = Kind(
    "counts-from-nonzero", "counts() does not start at zero, or includes messages from a rank to itself."
)
COUNTS_SCALED = Kind("counts-scaled", "counts() reports {times:.3g} x the bytes that are sent.", times=float)
GROWS_WITH_STEPS = Kind(
    "traffic-grows-with-steps",
    "Each step sends more than the step before: {first:,} bytes at first, {last:,} after {steps} steps.",
    because="A hook may be added anew in each step, or a list of gradients never emptied.",
    look="hooks and lists that are made in forward, backward or step",
    first=int,
    last=int,
    steps=int,
)
MESSAGES_GROW_WITH_STEPS = Kind(
    "messages-grow-with-steps",
    "Each step sends its gradients in more messages: {first} at first, {last} after {steps} steps.",
    because="A counter or the layout of the buckets may not be reset.",
    look="the state of buckets at the end of a backward",
    first=int,
    last=int,
    steps=int,
)
GRADIENTS_ALONE = Kind("gradients-sent-alone", "Every gradient is sent alone.", look="the size of buckets")
SMALL_GROUPS = Kind("gradients-in-small-groups", "Gradients are sent in many small groups.", look="the size of buckets")
