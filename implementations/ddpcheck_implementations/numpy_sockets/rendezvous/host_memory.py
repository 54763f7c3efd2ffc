"""Find the ranks of each host, and map the memory that they share.

Connected ranks exchange the ids of their hosts, made of the kernel that runs them and their network namespace, so that network
namespaces of one kernel count as hosts. Ranks of one host map each other's boards through /proc. If that fails for one of
them, all ranks of that host use sockets, and each counts as a host of its own.
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
from ..shared_memory.collectives import HostMemory
from ..shared_memory.mapping import MappedRegions, Region, RegionPool, map_region
from ..shared_memory.messages import MessageBoard, board_bytes, processor_keeps_store_order
from ..shared_memory.waiting import WakeUpPipe, WakeUpSender, enough_processors
from .exchange import exchange

_TOKEN_BYTES = 16
_HOST, _PROCESSORS, _TOKEN, _DESCRIPTORS = slice(0, 2), 0, slice(2, 4), slice(4, 7)
"""Parts of a card, the int64 numbers by which a rank introduces itself: its host id (two numbers, of which the first names the
kernel), a random token that its board ends with, its process id and the descriptors of its board (-1: none) and wake-up pipe.
"""
Hosts = tuple[tuple[int, ...], ...]
"""The ranks that share memory with each other, host by host. Every rank is on one host."""


def share_memory(
    rank: int, peers: Mapping[int, Peer], traffic: Traffic, *, must: bool, emulated: int = 0
) -> tuple[HostMemory | None, Hosts]:
    """Return memory shared with the other ranks of this host, None if they use sockets, and the ranks of all hosts.

    `emulated` is the number of the host that this rank acts as. RendezvousError if `must` and not all ranks share memory.
    """
    with ExitStack() as opened:
        pipe = WakeUpPipe()
        opened.callback(pipe.close)
        region, reason = _new_region(len(peers) + 1)
        card = _card(emulated, region, pipe)
        cards = exchange(peers, card, 0)
        near = {other: peers[other] for other, theirs in cards.items() if (theirs[_HOST] == card[_HOST]).all()}
        boards: dict[int, memoryview] = {}
        wakers: dict[int, WakeUpSender] = {}
        if region is not None:
            boards[rank] = region.view
            try:
                for other in near:
                    wakers[other], boards[other] = _map_board(cards[other], region.size, opened)
            except (OSError, ValueError) as error:
                reason = f"rank {rank} cannot map the memory of all others: {error}"
        agreement = np.array([not reason], np.int64)
        agreed = exchange(peers, agreement, 1) | {rank: agreement}
        if region is not None:
            region.close()
        reason = reason or next((f"rank {other} cannot" for other in near if not agreed[other][0]), "")
        if must and (reason or len(near) < len(peers)):
            far = next((other for other in peers if other not in near), rank)
            raise RendezvousError(far, f"ranks cannot share memory: {reason or f'rank {far} is on another host'}")
        hosts = _hosts({**cards, rank: card}, agreed)
        if reason or not near:
            return None, hosts
        opened.pop_all()
    local_ranks = 1 + sum(theirs[_PROCESSORS] == card[_PROCESSORS] for theirs in cards.values())
    oversubscribed = not enough_processors(local_ranks)
    board = MessageBoard(rank, boards, pipe, wakers, near, traffic, oversubscribed=oversubscribed)
    mapped = {other: MappedRegions(int(cards[other][_DESCRIPTORS][0])) for other in near}
    return HostMemory(board, RegionPool(), mapped), hosts


def _card(emulated: int, region: Region | None, pipe: WakeUpPipe) -> Array:
    token = os.urandom(_TOKEN_BYTES)
    descriptor = -1
    if region is not None:
        region.view[-_TOKEN_BYTES:] = token
        descriptor = region.descriptor
    numbers = np.array([os.getpid(), descriptor, pipe.descriptor], np.int64)
    return np.concatenate([np.frombuffer(_host_id(emulated) + token, np.int64), numbers])


def _map_board(card: Array, size: int, opened: ExitStack) -> tuple[WakeUpSender, memoryview]:
    """Open another rank's wake-up pipe, and map its board. OSError or ValueError if they cannot be reached."""
    process, descriptor, pipe = card[_DESCRIPTORS].tolist()
    waker = WakeUpSender(process, pipe)
    opened.callback(waker.close)
    board = map_region(process, descriptor, size)
    if board[-_TOKEN_BYTES:] != card[_TOKEN].tobytes():
        raise OSError(f"process {process} is another one here: its container has process ids of its own")
    return waker, board


def _hosts(cards: Mapping[int, Array], agreed: Mapping[int, Array]) -> Hosts:
    """Return the ranks that share memory, host by host; the same on all ranks."""
    found: dict[bytes, list[int]] = {}
    for rank in sorted(cards):
        found.setdefault(cards[rank][_HOST].tobytes(), []).append(rank)
    hosts: list[tuple[int, ...]] = []
    for ranks in found.values():
        hosts += [tuple(ranks)] if all(agreed[rank][0] for rank in ranks) else [(rank,) for rank in ranks]
    return tuple(hosts)


def _new_region(ranks: int) -> tuple[Region | None, str]:
    if not processor_keeps_store_order():
        return None, "this processor may reorder stores: use sockets"
    try:
        return Region(board_bytes(ranks)), ""
    except OSError as error:
        return None, f"there is no memory to share: {error}"


def _host_id(emulated: int) -> bytes:
    """Return two numbers: the first is equal for ranks that share processors, both for ranks that share a host."""
    # pathlib would take a tenth of a rank's start
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123
        kernel = file.read()
    network = os.stat("/proc/self/ns/net")  # noqa: PTH116
    return _digest(kernel) + _digest(b"%b %d %d %d" % (kernel, network.st_dev, network.st_ino, emulated))


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest()
