"""Memory layouts of arrays (TensorSpec.layout)."""

from __future__ import annotations

import numpy as np

from ..job import Layout
from ..seeded_values import Array, poison


def with_layout(array: Array, layout: Layout) -> Array:
    """Copy `array` into a memory layout (see TensorSpec); C order for "mixed" and "varied"."""
    if layout == "F":
        return np.array(array, order="F")
    if layout == "strided":
        return _within(array, 2 * array.shape[-1], 2) if array.ndim else array.copy()
    if layout == "columns" and array.ndim:
        return _within(array, array.shape[-1] + 3, 1)
    if layout == "permuted" and array.ndim:
        return np.moveaxis(np.array(np.moveaxis(array, 0, -1), order="C"), -1, 0)
    if layout == "reversed" and array.ndim:
        return np.array(array[::-1])[::-1]
    if layout == "repeated" and array.ndim:
        return np.lib.stride_tricks.as_strided(array[:1].copy(), array.shape, (0, *array[:1].strides[1:]))
    if layout == "read_only":
        return _read_only(array.copy())
    if layout == "offset":
        room = np.empty(array.size + 1, array.dtype)
        room[1:] = array.reshape(-1)
        return room[1:].reshape(array.shape)
    return array.copy()


def restore_layout(array: Array) -> Array:
    """Return the writable memory of an array from with_layout()."""
    return array if array.flags.writeable or array.base is None else np.asarray(array.base)


def _read_only(array: Array) -> Array:
    """A read-only view of an array that its owner can write to."""
    shown = array.view()
    shown.flags.writeable = False
    return shown


def _within(array: Array, width: int, step: int) -> Array:
    """Copy `array` into every `step`-th element of a poisoned array with rows of `width` elements."""
    wide = np.empty((*array.shape[:-1], width), array.dtype)
    poison(wide)
    view = wide[..., : step * array.shape[-1] : step]
    view[...] = array
    return view
