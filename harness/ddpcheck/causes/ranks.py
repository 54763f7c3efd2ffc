"""Why ranks hang, raise or die: told by where they stand, before anything is known of values."""

from .cause import Kind

RANK_RAISED = Kind(
    "rank-raised",
    "A rank raised {error}.",
    because="The error was raised at {at}.",
    look="the last line of the stack that is in your code",
    certainty="certain",
    error=str,
    at=str,
)
RESULT_VIOLATES_CONTRACT = Kind(
    "result-violates-contract",
    "{operation} returned a value that the contract does not allow.",
    look="the docstring of the method in ddpcheck/contract/adapter.py",
    certainty="certain",
    operation=str,
)
METHOD_MISSING = Kind(
    "method-missing",
    "The implementation has no {method}(), which a promise needs.",
    look="the promise: take it back, or add the method",
    certainty="certain",
    method=str,
)
RANK_DIED = Kind(
    "rank-died",
    "The process of a rank ended before its last operation.",
    look="calls that end a process, such as os._exit(), and the kernel's log if memory ran out",
    certainty="certain",
)
UNCAUGHT_COMPILED_ERROR = Kind(
    "uncaught-compiled-error",
    "Compiled code raised an uncaught error: {message}",
    certainty="certain",
    message=str,
)
CRASHED = Kind(
    "compiled-code-crashed",
    "Compiled code crashed with {signal}: {fault}.",
    look="buffers of an extension or of MPI that are freed while a message is still sent, and their sizes and dtypes",
    certainty="certain",
    signal=str,
    fault=str,
)
MESSAGE_TOO_LARGE = Kind(
    "message-too-large",
    "A message of {sent} bytes came to a call that has room for {room}: ranks make different calls.",
    because="The transport says so, and ends the process.",
    look="the call in which each rank is, conditions on the rank or its data around calls, and the order of buckets",
    certainty="certain",
    sent=int,
    room=int,
)

RIGHT_WHEN_REPEATED = Kind(
    "right-when-repeated",
    "The same Job is right when it runs again: the failure depends on timing or on earlier calls.",
    because="Shared memory may be read too early, or be overwritten too early.",
    look="waits for asynchronous work, and state that an earlier call leaves",
    certainty="possible",
)
WAITS_FOR_A_PROGRAM = Kind(
    "waits-for-a-program",
    "{ranks:Rank # waits for a program that it|Ranks # wait for programs that they} started, such as a compiler.",
    look="--deadline, if the program only takes long",
    ranks=tuple[int, ...],
)
IMPORTS_MODULES = Kind(
    "imports-modules",
    "{ranks:Rank # is|Ranks # are} still importing modules.",
    look="--deadline, if the import is only slow",
    ranks=tuple[int, ...],
)
STILL_EXCHANGES_MESSAGES = Kind(
    "still-exchanges-messages",
    "{ranks:Rank # still exchanges|Ranks # still exchange} messages after the deadline: slow, or in a loop that does not end.",
    because="Bytes moved over TCP on every rank that has not ended, so this is no deadlock.",
    look="--deadline: raise it, and a slow operation ends; otherwise look for a loop that repeats messages until ranks agree",
    ranks=tuple[int, ...],
)
CLOSE_WAITS = Kind(
    "close-waits",
    "close() waits for something that never comes.",
    because="close() must end by itself, whether other ranks have closed or not.",
    look="threads and connections that close() waits for",
)
LOCAL_OPERATION_DOES_NOT_END = Kind(
    "local-operation-does-not-end",
    "{operations} does not end: an endless loop, or a wait for a message that no rank sends.",
    look="--deadline, if the operation is only slow",
    operations=tuple[str, ...],
)
WAITS_WITHOUT_PEERS = Kind(
    "waits-without-peers",
    "A world of one rank hangs: it waits for itself, for its own lock, or loops.",
    look="the case of one rank: no neighbour to send to or to receive from",
)
GROUP_WAITS_WITHOUT_PEERS = Kind(
    "group-waits-without-peers",
    "A group of one rank hangs: it waits for an outsider, for itself, or loops.",
)
SENT_MESSAGE_LOST = Kind(
    "sent-message-lost",
    "{ranks:The message of rank # was|The messages of ranks # were} lost.",
    because="A message that arrives before its receiver waits is dropped, or another receiver takes it.",
    look="the address, tag and connection of the message",
    ranks=tuple[int, ...],
)
BROADCAST_NOT_FORWARDED = Kind(
    "broadcast-not-forwarded",
    "{done:Rank #|Ranks #} finished the broadcast; no rank forwards the array to {stuck:rank #|ranks #}.",
    look="the forwarding tree of the broadcast, and ranks that leave a collective early",
    done=tuple[int, ...],
    stuck=tuple[int, ...],
)
LEFT_COLLECTIVE_EARLY = Kind(
    "left-collective-early",
    "{ranks:Rank #|Ranks #} left a collective early, or skipped one; the others still wait in it.",
    ranks=tuple[int, ...],
)
RANKS_IN_DIFFERENT_OPERATIONS = Kind(
    "ranks-in-different-operations",
    "The ranks wait in different operations: one left a collective that the others are still in.",
)
ALL_WAIT_IN_ONE_OPERATION = Kind(
    "all-wait-in-one-operation",
    "Every rank waits in the same operation for a message that no rank sends.",
)
ALL_SEND_NONE_RECEIVES = Kind(
    "all-send-none-receives",
    "{ranks:Rank # is sending, and does|Ranks # are sending, and do} not receive: "
    "every message waits until its receiver has sent its own.",
    because="A send returns early only while the kernel's buffers have room for the message.",
    look="the order of send and receive: one of two ranks must receive first, or both at once",
    ranks=tuple[int, ...],
)
WAITS_FOR_A_THREAD = Kind(
    "waits-for-a-thread",
    "Every rank waits for one of its own threads, which does not run.",
    because="A thread that a parent started before it forked does not exist in the ranks.",
    look="the stack of that thread, and locks or queues that it needs",
)
