"""Ranks that wait forever for a program, a group of one, a message or a condition."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..collectives.collectives import FINITE, MESSAGES, SUM
from ..engine.circumstances import elements, on_rank
from ..engine.collective_effects import instead
from ..engine.collectives import Call, all_reduce, group_of, in_group, in_place
from ..engine.fault import Fault, table
from ..engine.samplers import drops_last, has_remainder, padding
from ..facet_seams import PassThrough, PlainSampler, collectives
from .timing import DEATH, FOR_EVER, waits_for_ever

PLACES = 32
"""The number of messages that can wait for a receiver."""
SMALL = 4096
"""Bytes. Larger messages do not use the mailbox."""
HEAD = struct.Struct("!IQ")
"""Header of a small message: its sender, and the number of messages that the sender sent before."""


@instead
def waits_for_itself(call: Call) -> Array:
    time.sleep(FOR_EVER)
    return call.array


@instead
def waits_for_a_compiler(call: Call) -> Array:
    """The program ends when its input is closed, which never happens."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as compiler:
        compiler.wait()
    return call.array


@padding
def shuffled_until_none_comes_twice(sampler: PlainSampler, order: Array) -> Array:
    """After padding, some samples are repeated, so the loop never ends."""
    found = PlainSampler.padded(sampler, order)
    while len(set(found.tolist())) < len(found):
        time.sleep(0.01)
        found = np.random.default_rng(sampler.stream()).permutation(found)
    return found


@collectives("messages-past-32-are-dropped", MESSAGES, cause="sent-message-lost")
class PastPlacesDropped(PassThrough):
    """Messages past the 32nd that wait for their receiver are dropped."""

    waiting = 0

    def send(self, array: Array, dest: int) -> None:
        self.waiting += 1
        if self.waiting <= PLACES:
            self.comm.send(array, dest)

    def recv(self, array: Array, source: int) -> Array:
        self.waiting = 0
        return np.asarray(self.comm.recv(array, source))


@collectives("first-message-taken-from-any-rank", MESSAGES, cause="source-ignored", world_size=3)
class OneMailbox(PassThrough):
    """recv() of a small message takes the first one that arrives, whichever rank sent it.

    Messages are numbered per sender, so a message of a later call has a number above the count of received messages.
    """

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.sent = self.received = 0
        self.waiting: list[tuple[int, int, bytes]] = []
        self.box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.box.bind("")
        name = np.frombuffer(self.box.getsockname().ljust(64, b"\0"), np.uint8).astype(np.int64)
        self.names = [row.astype(np.uint8).tobytes().rstrip(b"\0") for row in comm.all_gather(name)]

    def send(self, array: Array, dest: int) -> None:
        if array.nbytes > SMALL:
            self.comm.send(array, dest)
        else:
            self.box.sendto(HEAD.pack(self.rank, self.sent) + array.tobytes(), self.names[dest])
        self.sent += 1

    def recv(self, array: Array, source: int) -> Array:
        if array.nbytes > SMALL:
            got = np.asarray(self.comm.recv(array, source))
        else:
            sender, content = self.first(source)
            if sender != source:
                raise RuntimeError(f"expected a message of rank {source}, and got one of rank {sender}")
            got = np.frombuffer(content, array.dtype).reshape(array.shape).copy()
        self.received += 1
        return got

    def first(self, source: int) -> tuple[int, bytes]:
        """Sender and content of the first message that belongs to this call."""
        while True:
            for place, (sender, number, content) in enumerate(self.waiting):
                if sender == source or number <= self.received:
                    del self.waiting[place]
                    return sender, content
            message = self.box.recv(SMALL + HEAD.size)
            self.waiting.append((*HEAD.unpack_from(message), message[HEAD.size :]))


# fmt: off
table(
    globals(),
    Fault("group-of-one-waits-for-itself", "All-reduce in a group of one rank waits forever.",
          where=all_reduce & in_group & group_of(1), effect=waits_for_itself,
          caught_by=FINITE, cause="group-waits-without-peers"),
    Fault("world-of-one-waits-for-itself", "All-reduce at world size 1 waits forever.",
          where=(all_reduce | in_place) & group_of(1), effect=waits_for_itself,
          caught_by=SUM, cause="waits-without-peers", world_size=1),
    Fault("empty-array-waits-for-a-compiler",
          "All-reduce of an array without elements waits on rank 0 for a program that never ends.",
          where=all_reduce & elements(0) & on_rank(0), effect=waits_for_a_compiler,
          caught_by=SUM, cause="waits-for-a-program"),
    Fault("shuffled-until-none-comes-twice",
          "The sampler reshuffles until no sample is repeated, which never happens after padding.",
          where=has_remainder & ~drops_last, effect=shuffled_until_none_comes_twice,
          caught_by="check_shards_are_disjoint_and_complete", cause="local-operation-does-not-end"),
    Fault("rank-0-waits-after-an-error", "Rank 0 retries a broken connection forever and does not report the error.",
          where=on_rank(0), effect=waits_for_ever,
          caught_by=DEATH, cause="error-not-passed-on", world_size=3),
)
# fmt: on
