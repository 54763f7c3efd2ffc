"""Messages, rows and barriers with a wrong sender, order or memory layout, or without a late rank."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, first_dimension_reversed
from ..engine.collective_effects import giving, instead, sent_as
from ..engine.collectives import Call, all_reduce, barrier, op, received, sent
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .layouts import SUM
from .many_calls import CALLS, TAGS
from .memory import MESSAGES
from .misplaced_blocks import LATE

PATIENCE = 0.6
"""Seconds that a barrier waits for other ranks."""

by_columns = Circumstance("memory by columns", lambda call: call.array.ndim > 1 and call.array.flags.f_contiguous)
rows_repeated = Circumstance(
    "a row that is repeated", lambda call: call.array.ndim and len(call.array) > 1 and not call.array.strides[0]
)


@giving
def written_by_rows(call: Call, result: Array) -> Array:
    return result.ravel().reshape(result.shape, order="F")


@instead
def accumulated_in_one_row(call: Call) -> Array:
    """The accumulator copies the array's layout, so all rows share memory, and every row is added to it."""
    rows = call.gathered()
    total = rows.sum(axis=0, dtype=call.array.dtype)
    return np.asarray(call.array + len(total) * (total - call.array)).astype(call.array.dtype)


@instead
def waits_a_little(call: Call) -> Any:
    waiting = threading.Thread(target=call.run, daemon=True)
    waiting.start()
    waiting.join(PATIENCE)


@collectives("message-delivered-with-the-next", MESSAGES, cause="messages-overtake")
class DeliveredWithTheNext(PassThrough):
    """A message is delivered only when the next of its shape and dtype arrives; the first arrives twice."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.held: dict[tuple[Any, ...], Array] = {}

    def recv(self, array: Array, source: int) -> Array:
        got = np.asarray(self.comm.recv(array, source))
        form = (source, got.shape, got.dtype)
        earlier, self.held[form] = self.held.get(form, got), got
        return earlier.copy()


@collectives("received-array-is-sent-on", MESSAGES, cause="wrong-sender")
class SentOn(PassThrough):
    """Send and receive share a buffer, so the next message sent is the last one received."""

    latest: Array | None = None

    def recv(self, array: Array, source: int) -> Array:
        self.latest = np.asarray(self.comm.recv(array, source))
        return self.latest.copy()

    def send(self, array: Array, dest: int) -> None:
        latest, self.latest = self.latest, None
        alike = latest is not None and (latest.shape, latest.dtype) == (array.shape, array.dtype)
        self.comm.send(latest if alike else array, dest)


@collectives("each-thousandth-result-is-the-one-before", CALLS, cause="earlier-result")
class OneBefore(PassThrough):
    """Every 1000th reduction returns the result of the previous one."""

    calls = 0
    latest: Array | None = None

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result, before = super().all_reduce(array, op, group=group), self.latest
        self.calls, self.latest = self.calls + 1, result.copy()
        stale = self.calls % TAGS == 0 and before is not None
        alike = before is not None and (before.shape, before.dtype) == (result.shape, result.dtype)
        return before if stale and alike and before is not None else result


# fmt: off
table(
    globals(),
    Fault("received-rows-written-as-columns", "Receive writes rows into a column-major array as if it were row-major.",
          where=received & by_columns, effect=written_by_rows,
          caught_by=MESSAGES, cause="received-by-rows"),
    Fault("reversed-rows-sent-from-the-start",
          "Send reads an array with a reversed first dimension from the start of its memory.",
          where=sent & first_dimension_reversed,
          effect=sent_as(lambda call: call.array[::-1]),
          caught_by=MESSAGES, cause="reversed-rows-ignored"),
    Fault("repeated-rows-accumulate-in-one", "Sums of an array with stride 0 accumulate all rows in one.",
          where=all_reduce & op("sum") & rows_repeated, effect=accumulated_in_one_row,
          caught_by=SUM, cause="zero-stride-ignored"),
    Fault("barrier-waits-a-little", "Barrier waits for a limited time and then returns.",
          where=barrier, effect=waits_a_little,
          caught_by=LATE, cause="barrier-gave-up", world_size=3),
)
# fmt: on
