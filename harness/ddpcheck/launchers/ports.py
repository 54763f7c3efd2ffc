"""Free ports for MASTER_PORT: outside the ephemeral range, and reserved among ddpcheck drivers.

A driver takes no port twice: a killed world may have left a file, a segment or a socket named after its port, which
only implementations that promise `restarts_in_place` must tolerate.

Any outgoing connection may take a port of the ephemeral range before rank 0 binds it. Between drivers on one host an
abstract Unix socket is the lock: the kernel frees it when the process ends.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, islice

_FIRST, _LAST = 20000, 31999
_offsets = count()


class NoFreePort(OSError):
    """All ports from `first` to `last` are taken."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"all ports from {first} to {last} on 127.0.0.1 are taken")
        self.first: int = first
        self.last: int = last


def has_loopback() -> bool:
    """Whether programs on this host can reach each other at 127.0.0.1. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 9))
        except OSError as error:
            return error.errno not in (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH)
    return True


@dataclass
class Port:
    """A reserved port. lock: the socket that reserves it among drivers."""

    number: int
    lock: socket.socket | None

    def release(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


def rendezvous_address(variables: Mapping[str, str]) -> tuple[Port, dict[str, str]]:
    """Reserve the port of MASTER_PORT, or a free one; return it with MASTER_ADDR and MASTER_PORT for ranks of this host."""
    wanted = variables.get("MASTER_PORT")
    port = reserve_port(None if wanted is None else int(wanted))
    return port, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.number)}


def reserve_port(number: int | None = None) -> Port:
    """Reserve a port that is free now, and that no other driver chooses before release(). NoFreePort if none is free.

    number: reserve this port, free or not.
    """
    if number is not None:
        return Port(number, _lock(number))
    span = _LAST - _FIRST + 1
    start = os.getpid() * 61 % span
    for offset in islice(_offsets, span):
        number = _FIRST + (start + offset) % span
        lock = _lock(number)
        if lock is None and sys.platform == "linux":
            continue
        if _free(number):
            return Port(number, lock)
        if lock is not None:
            lock.close()
    raise NoFreePort(_FIRST, _LAST)


def _lock(number: int) -> socket.socket | None:
    if sys.platform != "linux":
        return None
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        holder.bind(f"\0ddpcheck-port-{number}")
    except OSError:
        holder.close()
        return None
    return holder


def _free(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
    return True
