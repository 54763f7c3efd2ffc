"""Collectives that count elements, bytes or messages in too few bits."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import larger, larger_bytes
from ..engine.collective_effects import instead, local_from, own_value, tail_kept_local
from ..engine.collectives import Call, all_reduce, every_of_kind, in_place, op
from ..engine.fault import Fault, table

SIXTEEN_MIB = 16 << 20
BUFFERS = "check_collectives_need_no_room_in_socket_buffers"
COUNTS = "check_collectives_are_correct_past_24_bit_counts"
CALLS = "check_array_reused_over_thousands_of_calls_is_correct"


@instead
def compared_by_fmin_or_fmax(call: Call) -> Array:
    """Fmin and fmax ignore NaN."""
    rows = call.gathered()
    return np.asarray((np.fmin if call.op == "min" else np.fmax).reduce(rows, axis=0))


# fmt: off
table(
    globals(),
    Fault("tail-past-16-mebibytes-kept-local", "All-reduce leaves everything past 16 MiB unreduced.",
          where=(all_reduce | in_place) & larger_bytes(SIXTEEN_MIB),
          effect=tail_kept_local(lambda call: (call.array.nbytes - SIXTEEN_MIB) // call.array.itemsize),
          caught_by=BUFFERS),
    Fault("elements-counted-in-22-bits",
          "All-reduce counts elements in 22 bits; elements past the wrapped count stay local.",
          where=(all_reduce | in_place) & larger(1 << 22),
          effect=local_from(lambda call: call.array.size % (1 << 22)),
          caught_by=BUFFERS),
    Fault("elements-counted-in-float32",
          "All-reduce counts elements in float32; past 2^24 the last element can stay local.",
          where=(all_reduce | in_place) & larger(1 << 24),
          effect=local_from(lambda call: min(call.array.size - 1, int(np.float32(call.array.size)))),
          caught_by=COUNTS),
    Fault("nan-lost-in-large-minimum", "Minimum and maximum of more than 262,144 elements ignore NaN.",
          where=all_reduce & op("min", "max") & larger(1 << 18),
          effect=compared_by_fmin_or_fmax,
          caught_by="check_nan_propagates_in_minimum_and_maximum", cause="nan-lost", propagates_nan=True),
    Fault("message-number-of-two-bytes",
          "The 65,536th all-reduce returns the rank's own array, because message numbers wrap.",
          where=all_reduce & every_of_kind(1 << 16), effect=own_value,
          caught_by=CALLS, cause="not-reduced", deep=True),
)
# fmt: on
