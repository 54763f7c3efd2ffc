"""Circumstances: named predicates over one call, which combine with & | ~.

Those here read the array, the rank or the number of a call, which the calls of all seams have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array


@dataclass(frozen=True)
class Circumstance:
    """A named condition on a call."""

    text: str
    holds: Callable[[Any], Any]

    @classmethod
    def of(cls, holds: Callable[[Any], Any]) -> Circumstance:
        """A decorator: the function as a circumstance with the function's name."""
        return cls(holds.__name__.strip("_").replace("_", " "), holds)

    def __call__(self, call: Any) -> bool:
        return bool(self.holds(call))

    def __and__(self, other: Circumstance) -> Circumstance:
        return Circumstance(f"{self} and {other}", lambda call: self(call) and other(call))

    def __or__(self, other: Circumstance) -> Circumstance:
        return Circumstance(f"({self} or {other})", lambda call: self(call) or other(call))

    def __invert__(self) -> Circumstance:
        return Circumstance(f"not {self}", lambda call: not self(call))

    def __str__(self) -> str:
        return self.text


always = Circumstance("always", lambda call: True)

# ----------------------------------------------------------------------------------------------------------- the array


def dtype(*names: str) -> Circumstance:
    return Circumstance(" or ".join(names), lambda call: call.array.dtype in names)


def larger(elements: int) -> Circumstance:
    return Circumstance(f"more than {elements:,} elements", lambda call: call.array.size > elements)


def larger_bytes(size: int) -> Circumstance:
    return Circumstance(f"more than {size:,} bytes", lambda call: call.array.nbytes > size)


def bytes_between(least: int, most: int) -> Circumstance:
    return Circumstance(f"{least:,} to {most:,} bytes", lambda call: least < call.array.nbytes < most)


def elements(count: int) -> Circumstance:
    return Circumstance(f"{count} elements", lambda call: call.array.size == count)


def dimensions(count: int) -> Circumstance:
    return Circumstance(f"{count} dimensions", lambda call: call.array.ndim == count)


def more_dimensions(count: int) -> Circumstance:
    return Circumstance(f"more than {count} dimensions", lambda call: call.array.ndim > count)


def multiple_of_bytes(size: int) -> Circumstance:
    return Circumstance(
        f"a multiple of {size:,} bytes", lambda call: call.array.nbytes > 0 and call.array.nbytes % size == 0
    )


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


floats = Circumstance("floats", lambda call: is_float(call.array))
signed_integers = Circumstance("signed integers", lambda call: call.array.dtype.kind == "i")
odd_size = Circumstance("an odd size", lambda call: call.array.size % 2)
fewer_elements_than_ranks = Circumstance("fewer elements than ranks", lambda call: call.array.size < call.size)
fewer_rows_than_ranks = Circumstance(
    "fewer rows than ranks", lambda call: call.array.ndim > 1 and len(call.array) < call.size
)
fortran_order = Circumstance(
    "Fortran order", lambda call: call.array.flags.f_contiguous and not call.array.flags.c_contiguous
)
strided = Circumstance(
    "a strided array", lambda call: not (call.array.flags.c_contiguous or call.array.flags.f_contiguous)
)
negative_stride = Circumstance("a negative stride", lambda call: min(call.array.strides, default=0) < 0)
first_dimension_reversed = Circumstance(
    "a first dimension that runs backwards", lambda call: call.array.ndim > 0 and call.array.strides[0] < 0
)
read_only = Circumstance("a read-only argument", lambda call: not call.array.flags.writeable)
all_zero = Circumstance("zeros on this rank", lambda call: call.array.size > 0 and not call.array.any())
has_nan = Circumstance("a NaN", lambda call: is_float(call.array) and np.isnan(call.array).any())
has_infinity = Circumstance("an infinity", lambda call: is_float(call.array) and np.isinf(call.array).any())

# ------------------------------------------------------------------------------------------------- the rank, the calls


def on_rank(rank: int) -> Circumstance:
    return Circumstance(f"on rank {rank}", lambda call: call.rank == rank)


on_last_rank = Circumstance("on the last rank", lambda call: call.rank == call.world - 1)


def after_calls(count: int) -> Circumstance:
    return Circumstance(f"after {count} calls", lambda call: call.number > count)


def every(count: int) -> Circumstance:
    return Circumstance(f"at every {count}th call", lambda call: call.number % count == 0)
