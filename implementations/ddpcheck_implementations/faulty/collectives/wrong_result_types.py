"""Collectives with results of a wrong dtype or shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import dimensions, dtype, more_dimensions
from ..engine.collective_effects import giving
from ..engine.collectives import Call, all_reduce, op
from ..engine.fault import Fault, table
from .collectives import MEAN, SUM


@giving
def left_in_double_precision(call: Call, result: Array) -> Any:
    return result.astype(np.float64)


@giving
def of_one_dimension(call: Call, result: Array) -> Any:
    return np.atleast_1d(result).ravel()


# fmt: off
table(
    globals(),
    Fault("means-stay-in-double-precision", "Means of float32 arrays are returned as float64.",
          where=all_reduce & op("mean") & dtype("float32"), effect=left_in_double_precision,
          caught_by=MEAN, cause="result-not-converted-back"),
    Fault("scalars-come-back-with-a-dimension", "Arrays without dimensions come back with one dimension.",
          where=all_reduce & dimensions(0), effect=of_one_dimension,
          caught_by=SUM, cause="scalar-array-not-handled"),
    Fault("results-come-back-flat", "Arrays of several dimensions come back with one dimension.",
          where=all_reduce & more_dimensions(1), effect=of_one_dimension,
          caught_by=SUM, cause="shape-lost"),
)
# fmt: on
