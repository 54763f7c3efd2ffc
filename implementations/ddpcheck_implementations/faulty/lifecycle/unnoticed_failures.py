"""Collectives that miss a dead rank or mismatched calls in some kinds of calls."""

from __future__ import annotations

import time

import numpy as np

from ddpcheck.seeded_values import Array

from ..collectives.mismatched_calls import ARRAYS, CALLS
from ..engine.collective_effects import instead, sent_as
from ..engine.collectives import Call, all_reduce, asynchronous, broadcast, in_part, in_place, op, reduce_scatter
from ..engine.fault import Fault, table
from .timing import DEATH, FOR_EVER, waits_for_ever

ROOM = 1 << 10
"""Bytes; arrays are padded to a multiple of this size."""


@instead
def waits_for_ever_if_it_fails_at_once(call: Call) -> Array:
    """Like a condition variable that is notified once, at a rank's death: a rank that waits later hangs."""
    began = time.monotonic()
    try:
        return call.run()
    except RuntimeError:
        if time.monotonic() - began < 0.02:
            time.sleep(FOR_EVER)
        raise


def _filled_up(array: Array) -> Array:
    """The array's bytes, padded with zeros."""
    message = np.zeros(-(-array.nbytes // ROOM) * ROOM, np.uint8)
    message[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return message.view(np.int32)


def _taken_out(message: Array, like: Array) -> Array:
    return message.view(np.uint8)[: like.nbytes].copy().view(like.dtype).reshape(like.shape)


in_messages_of_one_size = sent_as(
    lambda call: _filled_up(call.array),
    lambda call, message: _taken_out(message, call.array),
)


@instead
def gathered_in_messages_of_one_size(call: Call) -> Array:
    messages = call.comm.all_gather(_filled_up(call.array), group=call.group)
    rows = [_taken_out(message, call.array) for message in messages]
    return np.asarray(sum(rows[1:], rows[0]))


@instead
def gathered_and_compared(call: Call) -> Array:
    """Messages do not name the reduction, minimum or maximum."""
    rows = call.gathered()
    return np.asarray(rows.min(axis=0) if call.op == "min" else rows.max(axis=0))


@instead
def gathered_and_reduced(call: Call) -> Array:
    """Messages do not name the reduction."""
    folds = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}
    whole = folds.get(call.op or "", np.add).reduce(call.gathered(), axis=0, dtype=call.array.dtype)
    whole = (whole / call.size).astype(call.array.dtype) if call.op == "mean" else whole
    return np.array(np.split(whole, call.size)[call.place])


# fmt: off
table(
    globals(),
    Fault("death-told-to-who-waits-only",
          "A rank's death wakes ranks that already wait in all-reduce; ranks that enter it later hang.",
          where=all_reduce | in_place, effect=waits_for_ever_if_it_fails_at_once,
          caught_by=DEATH, cause="death-unnoticed"),
    Fault("dead-member-of-a-group-waited-for", "All-reduce in a group retries a broken connection forever.",
          where=(all_reduce | in_place) & in_part, effect=waits_for_ever,
          caught_by=DEATH, cause="death-unnoticed-in-group", world_size=3),
    Fault("broadcast-in-messages-of-one-size",
          "Broadcast pads messages to one size, so arrays of different sizes are not noticed.",
          where=broadcast, effect=in_messages_of_one_size,
          caught_by=ARRAYS, cause="messages-unlabelled", world_size=3, detects_mismatch=True),
    Fault("asynchronous-in-messages-of-one-size",
          "Asynchronous sums pad messages to one size, so arrays of different sizes are not noticed.",
          where=asynchronous & op("sum"),
          effect=gathered_in_messages_of_one_size,
          caught_by=ARRAYS, cause="messages-unlabelled", world_size=4, detects_mismatch=True),
    Fault("minimum-and-maximum-look-alike", "Minimum and maximum send equal messages, so a mismatch is not noticed.",
          where=(all_reduce | in_place) & op("min", "max"),
          effect=gathered_and_compared,
          caught_by=CALLS, cause="messages-unlabelled", world_size=3, detects_mismatch=True),
    Fault("reductions-of-scatters-look-alike",
          "All reductions of reduce-scatter send equal messages, so a mismatch is not noticed.",
          where=reduce_scatter, effect=gathered_and_reduced,
          caught_by=CALLS, cause="messages-unlabelled", world_size=4, detects_mismatch=True),
)
# fmt: on
