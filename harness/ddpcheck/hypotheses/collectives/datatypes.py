"""Hypotheses about a reduction in which the transport used another dtype than the array's, and so summed its bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from ...causes import Cause
from ...causes import collectives as causes
from ...seeded_values import Array

_TAKEN_FOR = {
    "int64": ("float64", "int32", "float32"),
    "int32": ("float32", "int64"),
    "float64": ("int64", "float32", "int32"),
    "float32": ("int32", "float64"),
}
FOLDS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
}
"""The function of two values for each reduction; a mean is divided afterwards."""


def of_another_datatype(parts: Sequence[Array], reduction: str) -> Iterator[tuple[Cause, Array]]:
    """Causes, and the reduction of these arrays of one dtype as computed in each other dtype."""
    dtype, shape = parts[0].dtype, parts[0].shape
    by = FOLDS[reduction]
    for other in _TAKEN_FOR.get(dtype.name, ()):
        if parts[0].nbytes % np.dtype(other).itemsize or not parts[0].size:
            continue
        views = [np.ascontiguousarray(part).reshape(-1).view(other) for part in parts]
        with np.errstate(all="ignore"):
            made = reduce(by, views).view(dtype).reshape(shape)
        yield (
            causes.OTHER_DATATYPE(dtype=dtype.name, reduced_as=other),
            np.asarray(made / len(parts), dtype) if reduction == "mean" else made,
        )
