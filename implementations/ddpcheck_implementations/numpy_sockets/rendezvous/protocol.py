"""Rendezvous at one address: each rank gets one connection to every other rank.

Rank 0 listens on MASTER_ADDR:MASTER_PORT. Every other rank connects as soon as it can, receives a random challenge, and sends
its rank and the address where it listens itself, signed with the name of the run over the challenge. When all ranks are
there, rank 0 sends the table of addresses and a random secret to each. Rank r then connects to the ranks 1 .. r - 1 of the
table, sends the secret, and accepts the ranks above it. Its connection to rank 0 stays.

Ranks declare their numbers; the order of arrival has no meaning. A client that does not follow the protocol, or repeats a
greeting of another start, is dropped, and delays no rank. A rank that does not fit (another run, a rank twice) is sent the
reason. A run with a secret name is closed to all other programs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass

from ..errors import RendezvousError
from .accepting import accept_ranks

_MAGIC = b"NPSR"
_VERSION = 2
_HELLO = struct.Struct("!4sH32s16sIIH46s")  # magic, version, proof, run, rank, world size, own port, own address
_PROVED_FROM = struct.calcsize("!4sH32s")
_CHALLENGE_BYTES = 16
_REPLY = struct.Struct("!4sBI")  # magic, accepted or not, length of the body
_ENTRY = struct.Struct("!46sH")  # address, port
_GREETING = struct.Struct("!4sH16sI")  # magic, version, secret, rank
_SECRET_BYTES = 16
_Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RendezvousConfig:
    """One rank's view of a rendezvous. `run` distinguishes runs that use the same address by mistake; `timeout` is in seconds."""

    rank: int
    world_size: int
    address: str
    port: int
    run: str = ""
    timeout: float = 120.0

    @property
    def run_digest(self) -> bytes:
        return hashlib.blake2b(self.run.encode(), digest_size=16).digest()

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def connect_all_ranks(config: RendezvousConfig) -> dict[int, socket.socket]:
    """Return a connection to every other rank. RendezvousError if some are missing at the time limit, or do not fit."""
    if config.world_size == 1:
        return {}
    deadline = time.monotonic() + config.timeout
    return _host(config, deadline) if config.rank == 0 else _join(config, deadline)


# ------------------------------------------------------------------------------------------------------------- rank 0


def _host(config: RendezvousConfig, deadline: float) -> dict[int, socket.socket]:
    table: dict[int, _Address] = {0: ("", 0)}
    challenge = os.urandom(_CHALLENGE_BYTES)

    def judge(hello: bytes) -> int | str | None:
        magic, version, proof, run, rank, world_size, port, address = _HELLO.unpack(hello)
        if magic != _MAGIC:
            return None
        if version != _VERSION or run != config.run_digest:
            return f"rank 0 at {config} belongs to another run, or another version: choose another MASTER_PORT"
        if not hmac.compare_digest(proof, _proof(config, challenge, hello[_PROVED_FROM:])):
            return None
        if world_size != config.world_size or not 0 < rank < world_size:
            return f"rank {rank} of {world_size} does not fit a world of {config.world_size}: check RANK and WORLD_SIZE"
        if rank in table:
            return f"there is a rank {rank} already: every process needs a RANK of its own"
        table[rank] = (address.rstrip(b"\0").decode(errors="replace"), port)
        return int(rank)

    with _listen(config.address, config.port) as listener:
        expected = set(range(1, config.world_size))
        host = f"rank 0 at {config}"
        found = accept_ranks(listener, _HELLO.size, judge, _refusal, expected, deadline, host, challenge)
    secret = os.urandom(_SECRET_BYTES)
    body = secret + b"".join(_ENTRY.pack(host.encode(), port) for host, port in (table[r] for r in range(len(table))))
    for connection in found.values():
        connection.sendall(_REPLY.pack(_MAGIC, 1, len(body)) + body)
    return found


def _proof(config: RendezvousConfig, challenge: bytes, greeting: bytes) -> bytes:
    """Return the signature of a greeting, which differs between starts and between names of runs."""
    return hmac.digest(config.run.encode(), challenge + greeting, "sha256")


def _refusal(reason: str) -> bytes:
    text = reason.encode()
    return _REPLY.pack(_MAGIC, 0, len(text)) + text


# ------------------------------------------------------------------------------------------------------ the other ranks


def _join(config: RendezvousConfig, deadline: float) -> dict[int, socket.socket]:
    delay = 0.005
    while True:
        try:
            return _try_to_join(config, deadline)
        except OSError as failure:
            error = str(failure)
        if time.monotonic() + delay > deadline:
            raise RendezvousError(
                0,
                f"rank {config.rank} could not meet rank 0 at {config} within {config.timeout:g} s ({error}): is rank 0 "
                "running, and are MASTER_ADDR and MASTER_PORT the same for all ranks?",
            )
        time.sleep(delay)  # rank 0 may be late
        delay = min(2 * delay, 0.25)


def _try_to_join(config: RendezvousConfig, deadline: float) -> dict[int, socket.socket]:
    """Join once. OSError if rank 0 does not listen yet, or closes the connection: a later try may succeed."""
    with ExitStack() as opened:
        connection = opened.enter_context(_connect((config.address, config.port), deadline))
        with _listen(connection.getsockname()[0], 0) as listener:
            secret, table = _introduce(config, connection, listener.getsockname()[1])
            found = {0: connection}
            for lower in range(1, config.rank):
                found[lower] = opened.enter_context(_greet(config, lower, table[lower], secret, deadline))
            found |= _accept_higher(config, listener, secret, deadline)
        opened.pop_all()  # keep the connections open
    return found


def _hello(config: RendezvousConfig, challenge: bytes, port: int, own: bytes) -> bytes:
    fields = config.run_digest, config.rank, config.world_size, port, own
    unsigned = _HELLO.pack(_MAGIC, _VERSION, b"", *fields)
    return _HELLO.pack(_MAGIC, _VERSION, _proof(config, challenge, unsigned[_PROVED_FROM:]), *fields)


def _introduce(config: RendezvousConfig, connection: socket.socket, port: int) -> tuple[bytes, list[_Address]]:
    """Send this rank's hello, and return the secret and the table, which come once all ranks are there."""
    own = connection.getsockname()[0].encode()
    rank, size = config.rank, config.world_size
    challenge = receive_exactly(connection, _CHALLENGE_BYTES)
    connection.sendall(_hello(config, challenge, port, own))
    magic, welcome, length = _REPLY.unpack(receive_exactly(connection, _REPLY.size))
    if magic != _MAGIC or length > _SECRET_BYTES + _ENTRY.size * size + 1000:
        raise RendezvousError(0, f"another program answers at {config}: choose another MASTER_PORT")
    body = receive_exactly(connection, length)
    if not welcome:
        raise RendezvousError(0, f"rank {rank} was turned away: {body.decode(errors='replace')}")
    if length != _SECRET_BYTES + _ENTRY.size * size:
        raise RendezvousError(0, f"rank 0 at {config} has another number of ranks: check WORLD_SIZE")
    entries = _ENTRY.iter_unpack(body[_SECRET_BYTES:])
    return body[:_SECRET_BYTES], [(address.rstrip(b"\0").decode(errors="replace"), port) for address, port in entries]


def _greet(config: RendezvousConfig, lower: int, place: _Address, secret: bytes, deadline: float) -> socket.socket:
    try:
        connection = _connect(place, deadline)
        connection.sendall(_GREETING.pack(_MAGIC, _VERSION, secret, config.rank))
    except OSError as error:
        raise RendezvousError(
            lower,
            f"rank {config.rank} cannot reach rank {lower} at {place[0]}:{place[1]} ({error}): see the output of rank {lower}, "
            "and check that its host lets ranks connect",
        ) from error
    return connection


def _accept_higher(
    config: RendezvousConfig, listener: socket.socket, secret: bytes, deadline: float
) -> dict[int, socket.socket]:
    """Accept the ranks above. All ranks listen before they introduce themselves, so connecting never waits."""
    rank = config.rank
    found: set[int] = set()

    def judge(greeting: bytes) -> int | None:
        _, _, shown, declared = _GREETING.unpack(greeting)
        if not rank < declared < config.world_size or declared in found or not hmac.compare_digest(shown, secret):
            return None
        found.add(declared)
        return int(declared)

    expected = set(range(rank + 1, config.world_size))
    return accept_ranks(listener, _GREETING.size, judge, _refusal, expected, deadline, f"rank {rank}")


# -------------------------------------------------------------------------------------------------------------- sockets


def _listen(address: str, port: int) -> socket.socket:
    """Listen on this address only, not on all addresses of the host."""
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family, backlog=1024)
    except OSError as error:
        raise RendezvousError(0, f"cannot listen on {address}:{port} ({error}): choose another MASTER_PORT") from error


def _connect(place: _Address, deadline: float) -> socket.socket:
    remaining = max(0.001, deadline - time.monotonic())
    connection = socket.create_connection(place, timeout=remaining)
    if connection.getsockname() == connection.getpeername():
        connection.close()
        raise ConnectionRefusedError("nobody listens there: the socket was connected to itself")
    connection.settimeout(remaining)
    return connection


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Receive `size` bytes. ConnectionResetError if the other side closes before."""
    got = bytearray()
    while len(got) < size:
        piece = connection.recv(size - len(got))
        if not piece:
            raise ConnectionResetError("rank 0 hung up before it answered")
        got += piece
    return bytes(got)
