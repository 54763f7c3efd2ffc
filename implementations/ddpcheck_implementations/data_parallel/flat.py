"""Named arrays as one flat array for each dtype, so that a model costs one message and not one per parameter.

Behind the elements of each flat array stands one flag per name: 1 where this rank has an array, 0 where it has None.
A sum over the ranks adds up flags along with the elements, which tells every rank what no rank had, with no second
message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ddpcheck.values import Array


class FlatBuffer:
    """The layout is that of the arrays it is made with, in their order: the same on all ranks for the same model."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        names: dict[np.dtype[np.generic], list[str]] = {}
        for name, array in arrays.items():
            names.setdefault(array.dtype, []).append(name)
        self._parts = [_Part(dtype, {name: arrays[name].shape for name in of}) for dtype, of in names.items()]

    def pack(self, arrays: Mapping[str, Array | None]) -> list[Array]:
        """New flat arrays, one for each dtype; zeros for None."""
        return [part.pack(arrays) for part in self._parts]

    def unpack(self, flats: list[Array]) -> dict[str, Array | None]:
        """Views into the flat arrays by name; None where the flag is 0."""
        return {name: view for part, flat in zip(self._parts, flats, strict=True) for name, view in part.unpack(flat)}


class _Part:
    def __init__(self, dtype: np.dtype[np.generic], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._dtype = dtype
        self._places: list[tuple[str, slice, tuple[int, ...], int]] = []
        ends = 0
        elements = sum(math.prod(shape) for shape in shapes.values())
        for flag, (name, shape) in enumerate(shapes.items(), start=elements):
            start, ends = ends, ends + math.prod(shape)
            self._places.append((name, slice(start, ends), shape, flag))
        self._size = elements + len(shapes)

    def pack(self, arrays: Mapping[str, Array | None]) -> Array:
        flat = np.zeros(self._size, self._dtype)
        for name, place, _, flag in self._places:
            array = arrays[name]
            if array is not None:
                flat[place] = array.ravel()
                flat[flag] = 1
        return flat

    def unpack(self, flat: Array) -> list[tuple[str, Array | None]]:
        flags = flat[self._size - len(self._places) :].tolist()
        return [
            (name, flat[place].reshape(shape) if flag else None)
            for (name, place, shape, _), flag in zip(self._places, flags, strict=True)
        ]
