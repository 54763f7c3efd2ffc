"""Results that nobody can write to: as they come from bytes, from other frameworks, or as NumPy's scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

WRITABLE = "check_results_can_be_written_to"
WORDS = "np.array() copies it"


@collectives("scalars-for-arrays-without-dimensions", WRITABLE, words=WORDS, writable_results=True)
class Scalars(PassThrough):
    """Arithmetic makes NumPy's scalars of arrays that have no dimensions."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        return super().all_reduce(array, op, group=group)[()]


@collectives("messages-are-views-of-bytes", WRITABLE, words=WORDS, writable_results=True)
class ViewsOfBytes(PassThrough):
    """A message is bytes, which are not to be changed."""

    def recv(self, array: Array, source: int) -> Array:
        got = np.asarray(self.comm.recv(array, source))
        return np.frombuffer(got.tobytes(), got.dtype).reshape(got.shape)


@collectives("gathered-past-64-kib-is-read-only", WRITABLE, words=WORDS, writable_results=True)
class LargeAsInAFile(PassThrough):
    """What is large lies in a file that is mapped for reading."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result = np.asarray(self.comm.all_gather(array, group=group))
        result.flags.writeable = result.nbytes <= 1 << 16
        return result


@collectives("read-only-results")
class ReadOnly(PassThrough):
    """What it gives is read-only, as arrays of JAX are, and it promises nothing else."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return read_only(super().all_reduce(array, op, group=group))

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        return read_only(super().broadcast(array, root, group=group))

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        return read_only(np.asarray(self.comm.all_gather(array, group=group)))

    def recv(self, array: Array, source: int) -> Array:
        return read_only(np.asarray(self.comm.recv(array, source)))


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
