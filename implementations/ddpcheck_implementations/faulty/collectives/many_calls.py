"""Collectives that are wrong after many calls, or when an array is passed again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.collective_effects import own_value
from ..engine.collectives import all_reduce, every_of_kind
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives

CALLS = "check_array_reused_over_thousands_of_calls_is_correct"
TAGS = 1000


@collectives("flat-form-kept-by-address", CALLS, cause="first-result-again")
class FlatFormKept(PassThrough):
    """The flat copy of a non-contiguous array is cached by address and reused for later contents."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.flat: dict[tuple[Any, ...], tuple[Array, Array]] = {}

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.flags.c_contiguous:
            return super().all_reduce(array, op, group=group)
        place = (array.ctypes.data, array.shape, array.strides, array.dtype)
        _, flat = self.flat.setdefault(place, (array, np.ascontiguousarray(array)))
        return super().all_reduce(flat, op, group=group)


@collectives("a-thousand-tags", CALLS, cause="no-known-result")
class ThousandTags(PassThrough):
    """Received messages are stored by a tag that repeats after a thousand calls."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.received: dict[tuple[int, str], Array] = {}
        self.calls = 0

    def recv(self, array: Array, source: int) -> Array:
        self.calls = (self.calls + 1) % TAGS
        got = self.comm.recv(array, source)
        return self.received.setdefault((self.calls, f"{got.shape} {got.dtype}"), got).copy()


# fmt: off
table(
    globals(),
    Fault("every-thousandth-call-is-not-reduced", "Every 1000th all-reduce returns the rank's own array.",
          where=all_reduce & every_of_kind(TAGS), effect=own_value,
          caught_by=CALLS, cause="not-reduced"),
)
# fmt: on
