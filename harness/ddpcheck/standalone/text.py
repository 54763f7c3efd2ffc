"""The parts of a script: its imports, its inputs, and the lines of its program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..contract import Capabilities
from ..job import Job, Layout, TensorSpec
from ..seeded_values import Array, key_of, poison_like
from .literals import listed, literal

LITERAL_SIZE = 64
"""Elements of an array, over all ranks, that are written out; larger arrays come from a formula."""


class NoScript(Exception):
    """The Job has no stand-alone script; the message gives the reason."""


@dataclass
class Text:
    """A script in construction."""

    job: Job
    capabilities: Capabilities
    inputs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    facets: list[str] = field(default_factory=list)
    judges: bool = False  # whether anything is compared
    _tensors: dict[tuple[object, ...], str] = field(default_factory=dict)
    _formulas: set[str] = field(default_factory=set)

    def add(self, *lines: str) -> None:
        self.lines += lines

    def comment(self, position: int, text: str) -> None:
        self.add("", f"# operation {position}: {text}")

    def use(self, facet: str) -> None:
        """Note that the program calls this facet."""
        if facet not in self.facets:
            self.facets.append(facet)

    def tensor(self, spec: TensorSpec) -> str:
        """The name of the list of every rank's array; equal values share one name."""
        repeated = spec.layout == "repeated"
        key = (spec.shape, spec.dtype, spec.values, spec.seed, spec.spread, spec.step, repeated)
        if key not in self._tensors:
            count = len(self._tensors)
            name = self._tensors[key] = f"DATA_{count}" if count or self._many() else "DATA"
            self.inputs.append(self._arrays(name, spec))
        return self._tensors[key]

    def _many(self) -> bool:
        found = [getattr(op, "tensor", None) for op in self.job.operations]
        return sum(isinstance(tensor, TensorSpec) for tensor in found) > 1

    def _arrays(self, name: str, spec: TensorSpec) -> str:
        world = range(self.job.world_size)
        if math.prod(spec.shape) * len(world) <= LITERAL_SIZE or spec.values not in FORMULAS:
            if math.prod(spec.shape) > 50 * LITERAL_SIZE:
                raise NoScript(f"there is no formula for large arrays of {spec.values} values")
            return listed([literal(spec.on(rank)) for rank in world], name)
        for needed in ("words", *_BUILT_ON.get(spec.values, ()), spec.values):
            if needed not in self._formulas:
                self._formulas.add(needed)
                self.inputs.append("\n\n" + FORMULAS[needed].rstrip() + "\n\n")
        keys = ", ".join(f"0x{key_of(spec.seed, rank):016X}" for rank in world)
        times = f" * np.{spec.dtype}({spec.step})" if spec.step != 1 else ""
        size, limit = math.prod(spec.shape), f", {spec.spread}" if spec.values != "powers" else ""
        made = f'{spec.values}({size}, key{limit}).astype("{spec.dtype}").reshape({spec.shape}){times}'
        made += f"[:1].repeat({spec.shape[0]}, axis=0)" if spec.layout == "repeated" and spec.shape else ""
        return f"{name} = [{made} for key in ({keys},)]"


def layout_code(array: str, layout: Layout, shape: Sequence[int], dtype: str) -> tuple[str, str]:
    """An expression for a copy of `array` in this layout, and a remark on it."""
    if layout == "F" and len(shape) > 1:
        return f'np.array({array}, order="F")', "in Fortran order"
    if layout == "mixed" and len(shape) > 1:
        return f'np.array({array}, order="F" if rank % 2 else "C")', "in Fortran order on odd ranks"
    if layout == "strided" and shape:
        return f"np.repeat({array}, 2, axis=-1)[..., ::2]", "every other element of a larger array"
    if layout == "columns" and shape:
        return f"np.append({array}, {array}[..., :1], axis=-1)[..., :-1]", "the first columns of a wider array"
    if layout == "permuted" and shape:
        moved = f"np.moveaxis(np.moveaxis({array}, 0, -1).copy(), -1, 0)"
        return moved, "the first axis is the last in memory"
    if layout == "reversed" and shape:
        return f"np.array({array}[::-1])[::-1]", "with a negative stride"
    if layout == "repeated" and shape:
        strides = (0, *np.empty((1, *shape[1:]), dtype).strides[1:])
        row = f"{array}[:1].copy()"
        return f'np.ndarray({tuple(shape)}, "{dtype}", {row}, 0, {strides})', "one row, which a stride of 0 repeats"
    if layout == "read_only":
        return f"np.broadcast_to({array}, {tuple(shape)})", "read-only"
    if layout == "shared":
        return f'shared.setdefault("{array}", {array}.copy())', "the same array as in other calls"
    if layout == "offset":
        return (
            f'np.append(np.zeros(1, "{dtype}"), {array})[1:].reshape({tuple(shape)})',
            "begins inside a larger buffer",
        )
    return f"{array}.copy()", ""


def poison(array: Array) -> str:
    """The argument of receiving ranks: a value that no rank sends."""
    return "np.nan" if poison_like(array).dtype.kind in "fc" else "113"


FORMULAS = {
    "words": '''\
def words(count, key):
    """Random 64-bit words (SplitMix64), equal for equal keys; each rank has its own key."""
    x = np.arange(1, count + 1, dtype="uint64") * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
''',
    "lattice": '''\
def lattice(count, key, limit):
    """Integers of [-limit, limit] without 0."""
    x = (words(count, key) >> np.uint64(33)).astype("int64") % (2 * limit) - limit
    return x + (x >= 0)
''',
    "real": '''\
def real(count, key, limit):
    """Uniform numbers of (-limit, limit)."""
    return ((words(count, key) >> np.uint64(11)) * 2.0**-53 - 0.5) * (2.0 * limit)
''',
    "powers": '''\
def powers(count, key):
    """Plus or minus 1 or 2."""
    return np.array([1, -1, 2, -2])[(words(count, key) >> np.uint64(40)) % np.uint64(4)]
''',
    "sparse": '''\
def sparse(count, key, limit):
    """Zeros with a few integers of [-limit, limit]."""
    return np.where((words(count, key) >> np.uint64(8)) % np.uint64(29) == 0, lattice(count, key, limit), 0)
''',
    "even": '''\
def even(count, key, limit):
    """The first integer repeated, with a few others."""
    x = lattice(count, key, limit)
    return np.where((words(count, key) >> np.uint64(8)) % np.uint64(29) == 0, x, x[:1])
''',
    "patchy": '''\
def patchy(count, key, limit):
    """Zeros, sparse, even or lattice, depending on the key."""
    look = int(words(1, key)[0] >> np.uint64(50)) % 4
    return (np.zeros(count), sparse(count, key, limit), even(count, key, limit), lattice(count, key, limit))[look]
''',
}
"""The generators of seeded_values.py, as functions for readers."""

_BUILT_ON = {"sparse": ("lattice",), "even": ("lattice",), "patchy": ("lattice", "sparse", "even")}
"""The functions that each of them calls."""
