"""Programs whose ranks stay alive and take turns: each makes a burst of calls, while all others wait in a read.

Each program has its own processes, and the time between its turns is the same as for the others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Protocol

from ddpcheck.ranks.channel import Channel, ChannelClosed, Listener, connect
from ddpcheck.seeded_values import Array

from .all_reduce_implementations import MEMORY, Compared, plain

_BURST_BYTES = 128 << 20
_FEWEST, _MOST = 2, 1000
_START_SECONDS, _LOOK_SECONDS = 60.0, 0.5
_WARM_SECONDS = 0.1
"""Ranks that wake at once share a processor until the scheduler has measured them, and wait in other ways until
then.
"""


class Started(Protocol):
    """Ranks, in the form of ddpcheck.launchers.launcher.Launched."""

    def poll(self) -> object:
        """None while all ranks run."""
        ...

    def kill(self) -> None:
        """End all ranks, and return after their end."""
        ...


Start = Callable[[Sequence[str]], Started]
"""Starts ranks that connect to this address with this secret."""


class Program:
    """The connected ranks of one program."""

    def __init__(self, name: str, ranks: Sequence[Channel]) -> None:
        self._name, self._ranks = name, ranks

    def turn(self, size: int) -> float:
        """Microseconds of one call on arrays of `size` bytes: from the first rank's begin to the last rank's end."""
        try:
            for rank in self._ranks:
                rank.send(str(size).encode())
            begins, ends, counts = zip(*(json.loads(rank.receive()) for rank in self._ranks), strict=True)
        except ChannelClosed:
            raise RuntimeError(f"{self._name}: a rank has ended; see its output above") from None
        seconds: float = (max(ends) - min(begins)) / counts[0]
        return seconds * 1e6


@contextmanager
def started(name: str, start: Start, world_size: int) -> Iterator[Program]:
    """Start ranks, and end them afterwards. RuntimeError if not all connect."""
    with ExitStack() as opened:
        listener = opened.enter_context(closing(Listener()))
        begun = start([listener.address, listener.secret])
        opened.callback(begun.kill)
        ranks: list[Channel] = []
        latest = time.monotonic() + _START_SECONDS
        while len(ranks) < world_size:
            try:
                rank = listener.accept(_LOOK_SECONDS)
            except TimeoutError:
                if time.monotonic() > latest or begun.poll() is not None:
                    came = f"{len(ranks)} of {world_size} ranks came"
                    raise RuntimeError(f"{name}: {came}; see their output above") from None
                continue
            if rank is not None:
                ranks.append(opened.enter_context(closing(rank)))
        yield Program(name, ranks)


def take_part(name: str, compared: Compared, rank: int, world_size: int, address: str, secret: str) -> None:
    """Run one rank until the other side closes. A wrong sum is an AssertionError."""
    right = world_size * (world_size + 1) / 2
    size, array = 0, plain(0)
    with closing(connect(address, secret)) as channel:
        while True:
            try:
                order = int(channel.receive())
            except ChannelClosed:
                return
            if order != size:
                size = order
                array = compared.array(size // 4)
                array[:] = rank + 1
                compared.reduce(array)
                wrong = 0 if name == MEMORY else int((array != right).sum())
                assert not wrong, f"{name}: {wrong} of {array.size} elements are wrong"
                array[:] = 0  # zeros can be summed without end
            channel.send(json.dumps(_burst(compared, array)).encode())


def calls(size: int, warm: int) -> int:
    """The number of timed calls on arrays of `size` bytes, after `warm` calls that took _WARM_SECONDS."""
    return min(warm, _MOST, max(_FEWEST, _BURST_BYTES // size))


def _burst(compared: Compared, array: Array) -> tuple[float, float, int]:
    """Begin and end of this rank's burst in seconds on the host's clock, and the number of calls.

    The array is 0 before and after.
    """
    reduce, warm = compared.reduce, 0
    start = time.perf_counter()
    while not array[0]:  # the same number on all ranks, even if they started at different times
        array[0] = time.perf_counter() - start > _WARM_SECONDS
        reduce(array)
        warm += 1
    count = calls(array.nbytes, warm)
    compared.barrier()  # no rank still writes to another's array
    array[0] = 0
    compared.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        reduce(array)
    return begin, time.perf_counter(), count
