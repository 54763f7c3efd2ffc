"""Causes beside wrong values: failures that are not reported, resources left behind, launchers that misreport."""

from .cause import Kind

ERROR_SWALLOWED = Kind(
    "error-swallowed",
    "An error in {operation} is swallowed, or a broken connection counts as its end.",
    because="The rank continues with its own data, or with none.",
    look="the error handling of {operation}, and calls after one that failed",
    operation=str,
)
FAILURE_FORGOTTEN = Kind(
    "failure-forgotten",
    "Earlier calls raised an error; this call ignores it.",
    because="A broken group may count as a group of one rank.",
    look="the error state: calls after a failure must raise too",
)
PROCESS_ENDED_BY_DEATH = Kind(
    "process-ended-by-death",
    "A broken connection ends the process; the program should get an exception.",
    because="A signal such as SIGPIPE, sys.exit() or a watching thread ends it: the program cannot save or report.",
    look="the handler of errors of the transport, such as MPI's, which ends the process by default",
)
DEATH_UNNOTICED_IN_GROUP = Kind(
    "death-unnoticed-in-group",
    "A broken connection is not noticed in a group, or its error is swallowed there.",
    look="the error handling of groups",
)
DEATH_UNNOTICED = Kind(
    "death-unnoticed",
    "No rank notices the broken connection, and there is no time limit.",
    look="reads that return nothing at the end of a connection, and a time limit for each wait",
)
TOLD_TO_WAITING_RANKS_ONLY = Kind(
    "told-to-waiting-ranks-only",
    "Only ranks that are already waiting learn of the death; rank {rank} came later.",
    look="how the death is stored: calls that start later must find it",
    certainty="possible",
    rank=int,
)
ERROR_NOT_PASSED_ON = Kind(
    "error-not-passed-on",
    "{ranks:Only rank #|Only ranks #} raised; the error does not reach the other ranks.",
    because="A rank that raises should close its connections, so that all others notice.",
    look="what a rank does with its connections when it raises",
    ranks=tuple[int, ...],
)
PROCESS_KEPT_ALIVE = Kind(
    "process-kept-alive",
    "A non-daemon thread, an exit handler or a waiting close() keeps the process alive.",
    look="threads without daemon=True, atexit handlers, and waits in close()",
)
CHILD_HOLDS_CONNECTIONS = Kind(
    "child-holds-connections",
    "A child process of the dead rank lives on and holds its connections.",
    look="descriptors that child processes inherit, and children that outlive their rank",
)
CLOSE_WAITS_FOR_DEAD = Kind(
    "close-waits-for-dead-rank",
    "close() waits for the dead rank, or for a thread that does.",
    because="A farewell, a last barrier or a join needs a time limit, and is pointless after a failure.",
    look="waits in close(): each needs a time limit",
)
SENT_DATA_LOST_BY_CLOSE = Kind(
    "sent-data-lost-by-close",
    "Rank {rank} closed before its data arrived, and they were lost.",
    because="Sent data must arrive even if the sender ends.",
    look="the end of close(): shut down sending, and read until the peer has closed",
    rank=int,
)
LEFT_OPEN = Kind(
    "left-open-after-close",
    "close() leaves {number} {resource} open.",
    because="A process that trains repeatedly runs out of them.",
    look="close(): it must close each {resource} that connect() and calls opened",
    number=int,
    resource=str,
)
FILES_LEFT = Kind(
    "files-left-after-close",
    "close() leaves files in the temporary folder: each rank may rely on another to remove them.",
    because="The files fill the disk run by run, and a later run may mistake them for its own.",
    look="close(): one named rank removes the files",
)
NAMED_MEMORY_LEFT = Kind(
    "shared-memory-left-after-close",
    "close() leaves named shared memory: each rank may rely on another to remove it.",
    because="The memory stays in use until the host restarts; a later run may mistake it for its own.",
    look="close(): one named rank unlinks the segment",
)

RANKS_AWAITED_IN_ORDER = Kind(
    "ranks-awaited-in-order",
    "The launcher waits for the ranks in order, so it sees a later failure first, or none.",
    look="the order in which the launcher looks at its ranks",
)
SIGNAL_TAKEN_FOR_SUCCESS = Kind(
    "signal-taken-for-success",
    "A negative exit status, which stands for a signal, is treated as success.",
    look="the test of the exit status: all values but 0 are failures",
)
STATUS_LOST = Kind(
    "exit-status-lost",
    "The exit status of the rank is lost.",
    look="the exit status that the launcher returns: that of the first rank that failed",
)
OWN_KILL_REPORTED = Kind(
    "own-kill-reported",
    "The launcher ends the other ranks, then reports their end as the failure.",
)
LAST_WORDS_LOST = Kind("last-output-lost", "The rank's last output is lost when the launcher ends the others.")
OUTPUT_NOT_PASSED_ON = Kind(
    "output-not-passed-on",
    "The launcher passes on the output of other ranks, but not of this one.",
)
RANK_READ_AT_IMPORT = Kind(
    "rank-read-at-import",
    "The rank is read when a module is imported, before the process has a rank.",
    look="connect(), which should read the rank",
)
WORLD_OF_ITS_OWN = Kind(
    "world-of-its-own",
    "Every process starts its own world: the launcher and the implementation do not match.",
    look="the launcher of the adapter: the engine whose variables connect() reads",
)
PORT_TAKEN_BY_PARENT = Kind(
    "port-taken-by-parent",
    "The module opens a port at import; the ranks' parent imports it first and holds the port.",
    look="connect(), which should open the port",
)

LOCAL_TAKEN_FOR_GLOBAL = Kind(
    "local-rank-taken-for-rank",
    "LOCAL_WORLD_SIZE is used as the world size, or LOCAL_RANK as the rank.",
    because="The ranks were told of two hosts; on one host the values are equal.",
    look="the variables that connect() reads: RANK and WORLD_SIZE",
)
HOSTS_WEIGH_EQUALLY = Kind(
    "hosts-weigh-equally",
    "Hosts have equal weight, whatever their number of ranks: the mean is that of the hosts' means.",
    because="Results are right if every host has as many ranks as the others.",
)
MESSAGES_UNLABELLED = Kind(
    "messages-unlabelled",
    "Messages carry no description of their call: the receiver accepts whatever arrives.",
    look="a header of each message: operation, number of the call, dtype, count, reduction, root",
)

FEW_SAMPLES_REFUSED_BY_SOME = Kind(
    "few-samples-refused-by-some",
    "Only ranks without samples raise; the others continue, and wait for them.",
)
UNEVEN_BATCHES_NOT_REFUSED = Kind(
    "uneven-batches-not-refused",
    "Batches of different sizes are refused on some ranks only, or on none.",
)
UNUSED_PARAMETER_NOT_REFUSED = Kind(
    "unused-parameter-not-refused",
    "A parameter without gradient raises on some ranks only, or on none.",
)
UNKNOWN_OPTION_ACCEPTED = Kind(
    "unknown-option-accepted",
    "make_replica() ignores options that it does not know: a misspelt one seems to be set.",
    look="make_replica(**options): raise for a name that it does not know",
)
