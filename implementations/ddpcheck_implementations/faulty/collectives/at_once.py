"""Asynchronous all-reduces that wait for the other ranks before they come back, and arguments that must be writable."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.adapter import Handle
from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

AT_ONCE = "check_an_asynchronous_all_reduce_returns_at_once"
READ_ONLY = "check_arguments_may_be_read_only"
EVERY_SIZE = "check_collectives_of_every_size_are_right"
WAITS = "the call waits for the other ranks"
EAGER = 1 << 16
"""Bytes that go without asking whether there is room for them."""


@collectives("large-asynchronous-is-waited-for", AT_ONCE, words=WAITS)
class LargeIsWaitedFor(PassThrough):
    """What is large is sent when the others are ready for it, for which the call waits."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        handle = self.comm.all_reduce_async(array, op, group=group)
        if array.nbytes > EAGER:
            handle.wait()
        return handle


@collectives("asynchronous-one-at-a-time", AT_ONCE, words=WAITS)
class OneAtATime(PassThrough):
    """There is room for one: a second one begins when the first has ended."""

    last: Handle | None = None

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if self.last is not None:
            self.last.wait()
        self.last = self.comm.all_reduce_async(array, op, group=group)
        return self.last


@collectives("asynchronous-in-groups-is-not", AT_ONCE, words=WAITS)
class NotInGroups(PassThrough):
    """The communicator of a group knows blocking calls only."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        handle = self.comm.all_reduce_async(array, op, group=group)
        if group is not None:
            handle.wait()
        return handle


@collectives("buffers-that-can-be-written-to", READ_ONLY, words="is taken for one to write to")
class WritableBuffers(PassThrough):
    """A buffer is asked for as one to write to, whether it is written to or not."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        if not array.flags.writeable:
            raise ValueError("buffer source array is read-only")  # what C's interface to buffers says
        return np.asarray(self.comm.all_gather(array, group=group))


@collectives("in-groups-in-the-callers-own", READ_ONLY, words="is taken for one to write to")
class InTheCallersOwn(PassThrough):
    """In a group an array is reduced where it lies, and then put back."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if group is None:
            return super().all_reduce(array, op)
        before = array.copy()
        array[...] = result = super().all_reduce(array, op, group=group)
        array[...] = before
        return result


@collectives("last-of-whole-rows-of-48", EVERY_SIZE, words="are zero: never written, or left out")
class LastOfWholeRows(PassThrough):
    """A message goes in rows of 48 elements, and what is left over; of three rows and more the last is taken for that."""

    def recv(self, array: Array, source: int) -> Array:
        got = np.array(self.comm.recv(array, source))
        if got.size > 96 and got.size % 48 == 0:
            got.reshape(-1)[-48:] = 0
        return got
