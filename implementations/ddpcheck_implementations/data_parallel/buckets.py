"""Buckets: flat arrays of gradients. Each is all-reduced in one message, most of them before backward ends.

Backward completes gradients in the reverse order of the parameters, and writes each into its bucket. Behind the elements is one
flag for each parameter: 1 if this rank has a gradient, else 0. Flags are averaged with the elements, so every rank learns
without a second message which gradients no rank had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ddpcheck.seeded_values import Array

from .flat_arrays import views

Empty = Callable[[tuple[int, ...], str], Array]
"""A function that makes an array of a shape and dtype, in memory where the transport is fastest."""


class _Memory:
    """A flat array: gradients by name, then the flags in the same order."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], elements: int, dtype: str, empty: Empty) -> None:
        self.flat = empty((elements + len(shapes),), dtype)
        self.flags = self.flat[elements:]
        self.views = views(self.flat, shapes)


class Bucket:
    """Gradients of some parameters of one dtype, in the order in which backward completes them.

    A gradient is local (accumulated by this rank since the last reduction) or reduced (equal on all ranks). A reduction turns
    local gradients into reduced ones, and adds them to earlier reduced ones, so each contribution is reduced once. Each kind
    has its memory; if zero_grad() comes between two reductions, one memory is used for both.
    """

    def __init__(self, parameters: Mapping[str, Array], empty: Empty) -> None:
        self.names = tuple(parameters)
        self._shapes = {name: array.shape for name, array in parameters.items()}
        self._elements = sum(array.size for array in parameters.values())
        self._dtype = next(iter(parameters.values())).dtype.str
        self._empty = empty
        self._local: _Memory | None = None
        self._reduced: _Memory | None = None
        self._has_local: set[str] = set()
        self._has_reduced: set[str] = set()

    # ------------------------------------------------------------------------------------------------ local gradients

    def place(self, name: str) -> Array | None:
        """Return memory for a gradient that backward writes; None if there is one already, which add() adds to."""
        return None if name in self._has_local else (self._local or self._memory()).views[name]

    def add(self, name: str, gradient: Array, weight: float) -> None:
        """Add a gradient of this rank, times `weight`. It may be in the memory of place() already."""
        place = (self._local or self._memory()).views[name]
        if name in self._has_local:
            place += gradient if weight == 1 else np.multiply(gradient, weight, dtype=gradient.dtype)
            return
        self._has_local.add(name)
        if gradient is not place:
            place[...] = gradient
        if weight != 1:
            place *= weight

    def scale_local(self, factor: float) -> None:
        """Multiply the local gradients."""
        for name in self._has_local:
            assert self._local is not None
            self._local.views[name] *= factor

    def _memory(self) -> _Memory:
        """Make the memory of the local gradients."""
        self._local = _Memory(self._shapes, self._elements, self._dtype, self._empty)
        return self._local

    # ---------------------------------------------------------------------------------------------------- reduced gradients

    def reduce(self, mean: Callable[[Array], object]) -> None:
        """Average the local gradients over the ranks, by `mean`, which averages a flat array in place.

        A parameter that only some ranks used counts as zero on the others; one that no rank used has no gradient.
        """
        memory = self._local or self._memory()
        memory.flags.fill(1)
        if len(self._has_local) < len(self.names):
            for position, name in enumerate(self.names):
                if name not in self._has_local:
                    memory.flags[position] = 0
                    memory.views[name].fill(0)
        mean(memory.flat)
        flags = memory.flags.tolist()
        used = {*self.names} if all(flags) else {name for name, flag in zip(self.names, flags, strict=True) if flag}
        self._has_local = set()
        if self._reduced is None or not self._has_reduced:
            self._local, self._reduced = self._reduced, memory
        else:
            for name in used & self._has_reduced:
                self._reduced.views[name] += memory.views[name]
            for name in used - self._has_reduced:
                self._reduced.views[name][...] = memory.views[name]
        self._has_reduced |= used

    # ------------------------------------------------------------------------------------------------------------ both

    def zero_grad(self) -> None:
        self._has_local, self._has_reduced = set(), set()
        if self._local is None:
            self._local, self._reduced = self._reduced, None

    def zero_gradients(self) -> None:
        """Set all gradients to zero; they count as reduced."""
        present = self._has_local | self._has_reduced
        self.zero_grad()
        self._reduced = self._reduced or _Memory(self._shapes, self._elements, self._dtype, self._empty)
        for name in present:
            self._reduced.views[name].fill(0)
        self._has_reduced = present

    def gradients(self) -> Mapping[str, Array | None]:
        """Return reduced plus local gradients: views if there is one kind, None if there is neither."""
        if self._reduced is not None and not self._has_local and len(self._has_reduced) == len(self.names):
            return self._reduced.views
        return {name: self._gradient(name) for name in self.names}

    def _gradient(self, name: str) -> Array | None:
        local = self._local.views[name] if self._local and name in self._has_local else None
        reduced = self._reduced.views[name] if self._reduced and name in self._has_reduced else None
        return local if reduced is None else reduced if local is None else reduced + local

    def scale(self, factor: float) -> None:
        """Multiply local and reduced gradients."""
        for memory, names in ((self._local, self._has_local), (self._reduced, self._has_reduced)):
            if memory is not None:
                for name in names:
                    memory.views[name] *= factor


def lay_out(parameters: Mapping[str, Array], capacity: int, empty: Empty) -> tuple[Bucket, ...]:
    """Assign parameters, in the order in which backward completes them, to buckets of at most `capacity` bytes.

    A larger parameter has a bucket of its own. Buckets are returned in the order in which backward fills them.
    """
    full: list[dict[str, Array]] = []
    filling: dict[np.dtype[np.generic], dict[str, Array]] = {}
    room: dict[np.dtype[np.generic], int] = {}
    for name, parameter in parameters.items():
        dtype = parameter.dtype
        room[dtype] = room.get(dtype, 0) - parameter.nbytes
        if dtype not in filling or room[dtype] < 0:
            filling[dtype], room[dtype] = {}, capacity - parameter.nbytes
            full.append(filling[dtype])
        filling[dtype][name] = parameter
    order = {name: position for position, name in enumerate(parameters)}
    full.sort(key=lambda bucket: order[next(reversed(bucket))])
    return tuple(Bucket(bucket, empty) for bucket in full)
