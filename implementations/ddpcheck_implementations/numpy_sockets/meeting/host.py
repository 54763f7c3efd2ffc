"""Which ranks share a host, and the memory that they share.

Ranks that have met tell each other where they are: the kernel that runs them, and their network namespace, so that hosts
that are namespaces of one kernel count as several. Those of one host map each other's boards through /proc. Only if that
worked for all ranks of the host is memory used: otherwise all of them use sockets, and count as hosts of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import blake2b

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections.peer import Peer, Traffic
from ..errors import RendezvousError
from ..shared_memory.collectives import Host
from ..shared_memory.mapping import Mapped, Pool, Region, map_region
from ..shared_memory.messages import Board, board_bytes, keeps_order
from ..shared_memory.waiting import fits
from ..shared_memory.wake_up import Bell, Rope
from .exchange import exchanged

_TOKEN_BYTES = 16
Hosts = tuple[tuple[int, ...], ...]
"""The ranks that share memory with each other, host by host; every rank is on one."""


def share_memory(
    rank: int, peers: Mapping[int, Peer], traffic: Traffic, *, must: bool, emulated: int = 0
) -> tuple[Host | None, Hosts]:
    """Memory shared with the other ranks of this host, or None if ranks use sockets; and which ranks share memory.

    RendezvousError if sockets `must` not do. Ranks of which another host is `emulated` are on another one.
    """
    with ExitStack() as ours:
        bell = Bell()
        ours.callback(bell.close)
        region, reason = _made(len(peers) + 1)
        token = os.urandom(_TOKEN_BYTES)
        descriptor = -1
        if region is not None:
            region.view[-_TOKEN_BYTES:] = token
            descriptor = region.descriptor
        numbers = np.array([os.getpid(), descriptor, bell.descriptor], np.int64)
        card = np.concatenate([np.frombuffer(_place(emulated) + token, np.int64), numbers])
        cards = exchanged(peers, card, 0)
        near = {other: peers[other] for other, told in cards.items() if (told[:2] == card[:2]).all()}
        boards: dict[int, memoryview] = {}
        ropes: dict[int, Rope] = {}
        if region is not None:
            boards[rank] = region.view
            try:
                for other in near:
                    process, board, rope = cards[other][4:].tolist()
                    ropes[other] = Rope(process, rope)
                    ours.callback(ropes[other].close)
                    boards[other] = map_region(process, board, region.size)
                    if boards[other][-_TOKEN_BYTES:] != cards[other][2:4].tobytes():
                        raise OSError("another process has its number")
            except (OSError, ValueError) as error:
                reason = f"rank {rank} cannot map the memory of all others: {error}"
        agreement = np.array([not reason], np.int64)
        agreed = exchanged(peers, agreement, 1) | {rank: agreement}
        if region is not None:
            region.close()
        reason = reason or next((f"rank {other} cannot" for other in near if not agreed[other][0]), "")
        if must and (reason or len(near) < len(peers)):
            far = next((other for other in peers if other not in near), rank)
            raise RendezvousError(far, f"ranks cannot share memory: {reason or f'rank {far} is on another host'}")
        hosts = _hosts({**cards, rank: card}, agreed)
        if reason or not near:
            return None, hosts
        ours.pop_all()
    crowded = not fits(1 + sum(told[0] == card[0] for told in cards.values()))
    mapped = {other: Mapped(int(cards[other][4])) for other in near}
    return Host(Board(rank, boards, bell, ropes, near, traffic, crowded=crowded), Pool(), mapped), hosts


def _hosts(cards: Mapping[int, Array], agreed: Mapping[int, Array]) -> Hosts:
    """The same on all ranks."""
    found: dict[bytes, list[int]] = {}
    for rank in sorted(cards):
        found.setdefault(cards[rank][:2].tobytes(), []).append(rank)
    hosts: list[tuple[int, ...]] = []
    for ranks in found.values():
        hosts += [tuple(ranks)] if all(agreed[rank][0] for rank in ranks) else [(rank,) for rank in ranks]
    return tuple(hosts)


def _made(ranks: int) -> tuple[Region | None, str]:
    if not keeps_order():
        return None, "this processor may reorder stores; use sockets"
    try:
        return Region(board_bytes(ranks)), ""
    except OSError as error:
        return None, f"there is no memory to share: {error}"


def _place(emulated: int) -> bytes:
    """Two numbers: ranks with both in common share a host, ranks with the first in common share processors."""
    # pathlib would take a tenth of a rank's start
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123
        kernel = file.read()
    network = os.stat("/proc/self/ns/net")  # noqa: PTH116
    return _digest(kernel) + _digest(b"%b %d %d %d" % (kernel, network.st_dev, network.st_ino, emulated))


def _digest(told: bytes) -> bytes:
    return blake2b(told, digest_size=8).digest()
