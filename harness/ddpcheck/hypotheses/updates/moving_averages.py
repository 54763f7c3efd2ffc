"""Hypotheses about a parameter's moving average: mistakes in its last update."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...oracle.origins import Averaged
from ...seeded_values import Array
from ..arrays import Evidence


def of_average(origin: Averaged, expected: Array, rank: int) -> Evidence:
    size = len(origin.average)
    known = tuple((cause, array[rank]) for cause, array in _alternatives(origin, size))
    return Evidence(size, alternatives=known, precision=False)


def _alternatives(origin: Averaged, size: int) -> Iterator[tuple[Cause, Array]]:
    decay = origin.decay
    late = _mixed(origin, decay, origin.old)
    yield causes.AVERAGE_LATE(), late
    yield causes.AVERAGE_NOT_UPDATED(), origin.average
    yield causes.AVERAGE_IS_PARAMETER(), origin.new
    yield causes.AVERAGE_SWAPPED(), _mixed(origin, 1 - decay)
    yield causes.AVERAGE_TWICE(), _mixed(origin, decay**2)
    yield causes.AVERAGE_BY_BACKWARDS(), decay * late + (1 - decay) * origin.new
    for dtype in ("float16", "float32"):
        yield causes.AVERAGE_IN(dtype=dtype), _mixed(origin, decay).astype(dtype).astype(np.float64)
    if size > 1:
        yield causes.AVERAGE_PER_RANK(), _mixed(origin, decay**size)
    for steps in (origin.steps - 1, origin.steps):
        warm = min(decay, (1 + steps) / (10 + steps))
        yield causes.AVERAGE_WARMS_UP(), _mixed(origin, warm)
        yield causes.AVERAGE_WARMS_UP_SWAPPED(), _mixed(origin, 1 - warm)


def _mixed(origin: Averaged, decay: float, parameter: Array | None = None) -> Array:
    return decay * origin.average + (1 - decay) * (origin.new if parameter is None else parameter)
