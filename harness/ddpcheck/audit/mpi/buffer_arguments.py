"""The arrays behind mpi4py's buffer arguments: an array, [array, type], [array, count, type], IN_PLACE or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...seeded_values import Array


def array_of(spec: Any) -> Array | None:
    """A flat view of the elements that take part; None without an array."""
    count = None
    if isinstance(spec, (list, tuple)):
        if not spec:
            return None
        count = next((each for each in spec[1:2] if isinstance(each, (int, np.integer))), None)
        spec = spec[0]
    if spec is None or type(spec).__name__ == "InPlaceType":  # MPI.IN_PLACE is an empty buffer from Python 3.12 on
        return None
    if not hasattr(spec, "__array__") and not hasattr(spec, "__buffer__"):
        return None
    try:
        flat = np.asarray(spec).reshape(-1, order="A")
    except (TypeError, ValueError):
        return None
    return flat if count is None else flat[:count]
