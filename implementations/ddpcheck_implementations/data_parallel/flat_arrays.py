"""Named arrays packed into one flat array for each dtype, so that a model is one message, not one per parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from ddpcheck.seeded_values import Array


class FlatBuffer:
    """The layout of named arrays, in their order: the same on all ranks for the same model."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._names: dict[np.dtype[np.generic], list[str]] = {}
        for name, array in arrays.items():
            self._names.setdefault(array.dtype, []).append(name)
        self._shapes = {name: array.shape for name, array in arrays.items()}

    def pack(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Copy arrays into new flat arrays, one for each dtype."""
        return [np.concatenate([arrays[name].ravel() for name in names]) for names in self._names.values()]

    def unpack(self, flats: Iterable[Array]) -> dict[str, Array]:
        """Return views into the flat arrays, by name."""
        found: dict[str, Array] = {}
        for names, flat in zip(self._names.values(), flats, strict=True):
            found |= views(flat, {name: self._shapes[name] for name in names})
        return found


def views(flat: Array, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return views of these shapes, one behind the other from the start of `flat`."""
    made: dict[str, Array] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape)
        made[name] = flat[start:end].reshape(shape)
    return made
