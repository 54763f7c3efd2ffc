"""Collectives that declare a wrong dtype to their transport."""

from __future__ import annotations

import numpy as np

from ..engine.circumstances import dtype
from ..engine.collective_effects import sent_as
from ..engine.collectives import CollectiveEffect, all_reduce, op
from ..engine.fault import Fault, table
from .collectives import SUM


def bits_as(other: str) -> CollectiveEffect:
    """Reduce the array's bits as another dtype."""
    return sent_as(
        lambda call: np.ascontiguousarray(call.array).reshape(-1).view(other),
        lambda call, result: result.view(call.array.dtype).reshape(call.array.shape),
    )


# fmt: off
table(
    globals(),
    Fault("int64-told-as-double", "Sums of int64 are declared as float64, so the bits are added as floats.",
          where=all_reduce & op("sum") & dtype("int64"), effect=bits_as("float64"),
          caught_by=SUM, cause="other-datatype"),
    Fault("int64-told-as-two-ints",
          "Sums of int64 are declared as pairs of int32, so carries between the halves are lost.",
          where=all_reduce & op("sum") & dtype("int64"), effect=bits_as("int32"),
          caught_by=SUM, cause="other-datatype"),
)
# fmt: on
