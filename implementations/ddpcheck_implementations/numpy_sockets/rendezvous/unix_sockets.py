"""Unix-domain sockets in place of the TCP connections of the rendezvous.

Each rank listens at an abstract address, which is in no file system and vanishes with its process, and sends the address over
TCP. Addresses are random, so only programs that received one from a rank can connect.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping

from ..errors import RendezvousError
from .accepting import accept_ranks
from .protocol import receive_exactly

_NAME_BYTES = 32
_RANK = struct.Struct("!I")


def reconnect_over_unix(
    rank: int, connections: Mapping[int, socket.socket], deadline: float
) -> dict[int, socket.socket]:
    """Return a Unix connection for every TCP connection, and close the latter. RendezvousError names a rank out of reach."""
    found: dict[int, socket.socket] = {}
    name = os.urandom(_NAME_BYTES)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(b"\0" + name)
        listener.listen(len(connections))
        try:
            for connection in connections.values():
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                connection.sendall(name)
            for other, connection in connections.items():
                named = receive_exactly(connection, _NAME_BYTES)
                if other < rank:
                    found[other] = _connect(rank, other, named)

            def judge(declared: bytes) -> int | None:
                (other,) = _RANK.unpack(declared)
                return other if other in higher and other not in found else None

            higher = {other for other in connections if other > rank}
            found |= accept_ranks(listener, _RANK.size, judge, str.encode, higher, deadline, f"rank {rank}")
        except BaseException as error:
            for connection in found.values():
                connection.close()
            if isinstance(error, OSError):
                raise RendezvousError(rank, f"rank {rank} lost another rank after the rendezvous: {error}") from error
            raise
        finally:
            for connection in connections.values():
                connection.close()
    return found


def _connect(rank: int, other: int, name: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(b"\0" + name)
        connection.sendall(_RANK.pack(rank))
    except OSError as error:
        connection.close()
        raise RendezvousError(
            other, f"rank {rank} cannot reach rank {other} by a Unix socket ({error}): use tcp between hosts"
        ) from error
    return connection
