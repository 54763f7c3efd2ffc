"""Collectives with read-only results: views of bytes, arrays of other frameworks, NumPy scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.collective_effects import giving
from ..engine.collectives import Call, all_gather, all_reduce, broadcast, received
from ..engine.fault import Fault, table

WRITABLE = "check_collective_results_are_writable"


@giving
def numpy_scalar(call: Call, result: Array) -> Any:
    """result[()] is a scalar if the array has no dimensions."""
    return result[()]


@giving
def view_of_bytes(call: Call, result: Array) -> Array:
    return np.frombuffer(result.tobytes(), result.dtype).reshape(result.shape)


@giving
def read_only_past_64_kib(call: Call, result: Array) -> Array:
    """A file mapped for reading gives such arrays."""
    result.flags.writeable = result.nbytes <= 1 << 16
    return result


@giving
def read_only(call: Call, result: Array) -> Array:
    result.flags.writeable = False
    return result


# fmt: off
table(
    globals(),
    Fault("scalars-for-arrays-without-dimensions", "All-reduce returns a NumPy scalar for an array without dimensions.",
          where=all_reduce, effect=numpy_scalar,
          caught_by=WRITABLE, cause="result-read-only", writable_results=True),
    Fault("messages-are-views-of-bytes", "recv() returns a read-only view of the received bytes.",
          where=received, effect=view_of_bytes,
          caught_by=WRITABLE, cause="result-read-only", writable_results=True),
    Fault("gathered-past-64-kib-is-read-only", "All-gather results of more than 64 KiB are read-only.",
          where=all_gather, effect=read_only_past_64_kib,
          caught_by=WRITABLE, cause="result-read-only", writable_results=True),
    # Correct: the results of JAX are read-only, too.
    Fault("read-only-results", "Correct if promised: results are read-only.",
          where=all_reduce | broadcast | all_gather | received, effect=read_only),
)
# fmt: on
