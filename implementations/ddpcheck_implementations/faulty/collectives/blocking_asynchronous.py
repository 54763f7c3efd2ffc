"""Asynchronous all-reduces that block, and arguments that must be writable."""

from __future__ import annotations

from typing import Any

from ddpcheck.contract.adapter import Handle
from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, larger_bytes, read_only
from ..engine.collective_effects import giving, raises, waited_for, zero_from
from ..engine.collectives import Call, all_gather, all_reduce, asynchronous, in_group, received
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives

AT_ONCE = "check_asynchronous_all_reduce_returns_immediately"
READ_ONLY = "check_collectives_accept_read_only_arguments"
EVERY_SIZE = "check_collectives_are_correct_at_every_array_size"
EAGER = 1 << 16
"""Bytes. Larger messages are sent only when the receiver is ready, as in the eager protocol of MPI."""


whole_rows_of_48 = Circumstance("rows of 48", lambda call: call.array.size > 96 and call.array.size % 48 == 0)


@giving
def written_to_the_argument(call: Call, result: Array) -> Array:
    """The argument's values are then restored."""
    before = call.array.copy()
    call.array[...] = result
    call.array[...] = before
    return result


@collectives("asynchronous-one-at-a-time", AT_ONCE, cause="asynchronous-call-waits")
class OneAtATime(PassThrough):
    """An asynchronous all-reduce starts only after the previous one has ended."""

    last: Handle | None = None

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if self.last is not None:
            self.last.wait()
        self.last = self.comm.all_reduce_async(array, op, group=group)
        return self.last


# fmt: off
table(
    globals(),
    Fault("large-asynchronous-is-waited-for",
          "An asynchronous all-reduce of more than 64 KiB blocks until its result is there.",
          where=asynchronous & larger_bytes(EAGER), effect=waited_for,
          caught_by=AT_ONCE,
          cause="asynchronous-call-waits"),
    Fault("asynchronous-in-groups-is-not", "An asynchronous all-reduce in a group blocks until its result is there.",
          where=asynchronous & in_group, effect=waited_for, caught_by=AT_ONCE,
          cause="asynchronous-call-waits"),
    Fault("all-gather-needs-writable-arguments", "All-gather raises ValueError for a read-only argument.",
          where=all_gather & read_only,
          effect=raises(ValueError, "buffer source array is read-only"),
          caught_by=READ_ONLY, cause="argument-must-be-writable"),
    Fault("group-all-reduce-writes-to-argument",
          "All-reduce in a group writes to its argument for a moment, which fails if the argument is read-only.",
          where=all_reduce & in_group, effect=written_to_the_argument,
          caught_by=READ_ONLY, cause="argument-must-be-writable"),
    Fault("last-48-elements-not-received",
          "Receive leaves the last 48 elements zero when the message is a multiple of 48 elements.",
          where=received & whole_rows_of_48, effect=zero_from(lambda result: result.size - 48),
          caught_by=EVERY_SIZE, cause="never-written"),
)
# fmt: on
