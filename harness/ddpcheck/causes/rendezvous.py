"""Why ranks do not form a world, or form a wrong one."""

from .cause import Kind

RANK_BY_ARRIVAL = Kind(
    "rank-by-arrival",
    "Ranks are numbered by arrival, not by the rank that they declare.",
    because="The ranks arrived in the order {order}.",
    look="what a rank sends when it connects: its RANK",
    order=tuple[int, ...],
)
EARLY_RANK_NOT_AWAITED = Kind(
    "early-or-late-rank-not-awaited",
    "A rank that starts early, or late, is not waited for.",
    because="The ranks arrived in the order {order}.",
    look="the number of connections that rank 0 waits for, and time limits at the start",
    order=tuple[int, ...],
)
SHORT_READ_TAKEN_FOR_ALL = Kind(
    "short-read-taken-for-all",
    "A short read, or a short send(), is treated as the whole message.",
    look="loops around recv() and send(), which must go on until all is done",
)
STRANGER_TAKEN_FOR_RANK = Kind(
    "stranger-taken-for-rank",
    "A foreign connection is accepted as a rank, or waited for.",
    because="Connections are not authenticated, or have no time limit.",
    look="the first message of a connection: check a secret or the run's id",
)
OLD_WORLD_LEFT = Kind(
    "old-world-left",
    "The new world uses a file, key or socket of the previous world.",
    look="names of files, keys and segments: a part that differs from world to world, and their removal",
)
NAME_SHARED_BY_WORLDS = Kind(
    "name-shared-by-worlds",
    "All worlds of a host share a port, file or segment that does not follow from MASTER_PORT.",
    look="names of ports, files and segments: they must follow from MASTER_PORT",
)
PORT_LOOKED_UP_FREE = Kind(
    "port-looked-up-free",
    "A port is looked up as free, released, and used later: another process took it meanwhile.",
    look="bind() to port 0 and close(): keep that socket, or try again where the port is in use",
)
UNPICKLES_STRANGERS = Kind(
    "unpickles-strangers",
    "Incoming bytes are unpickled before the sender is authenticated.",
    look="the first bytes that are read from a new connection",
)
LISTENS_EVERYWHERE = Kind(
    "listens-everywhere",
    "The socket listens on every interface of the host.",
    look="bind(): the address of MASTER_ADDR, not an empty one",
)
ORDER_BY_ARRIVAL = Kind(
    "order-by-arrival", "The order of additions depends on the ranks' arrival or processes: no two runs agree."
)
ORDER_FROM_A_FILE = Kind(
    "order-from-a-file",
    "The order of additions comes from a file that an earlier run made.",
    because="The temporary folder of this run was empty: a table of measured times, for example, was made anew.",
    certainty="possible",
)
