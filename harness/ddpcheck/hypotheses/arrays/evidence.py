"""A wrong array, and the knowledge of a check about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...causes import Cause
from ...causes.cause import Given
from ...seeded_values import Array

Alternatives = tuple[tuple[Cause, Array], ...]
"""Causes, each with the array that it would give."""
WhatIf = Iterator[tuple[Cause, Array]]
"""Causes with arrays, one after the other."""


@dataclass(frozen=True)
class Evidence:
    """The knowledge of a check beside the expected value.

    local: the array without any communication (this rank's own contribution). alternatives: (cause, array): the array
    that each cause would give. before: the array before the update. idle: the array after an update by a gradient of
    zero; the update adds a multiple of its gradient to it. precision: whether a difference of 1e-2 or 1e-3 may come
    from fewer bits. doubt: other causes of a factor of the world size. less: other causes of a division by the world
    size. zero: other causes of zeros. parts: the contributions of all ranks, with the ranks as first axis. otherwise:
    causes that are certain even if nothing else fits. bound: the largest effect of rounding on each element, if more
    than a few last bits. moved: the array was only copied, so each element is right or wrong by itself, even if others
    are much larger.
    """

    world_size: int = 1
    local: Array | None = None
    alternatives: Alternatives = ()
    before: Array | None = None
    idle: Array | None = None
    precision: bool = True
    doubt: Given = ()
    less: Given = ()
    zero: Given = ()
    otherwise: Given = ()
    parts: Array | None = None
    bound: Array | None = None
    moved: bool = False


@dataclass(frozen=True)
class WrongArray:
    """An array of the expected shape with a wrong element, or with wrong last bits."""

    got: Array
    expected: Array
    evidence: Evidence

    @cached_property
    def wrong(self) -> Array:
        """Which elements are wrong by more than their last bits."""
        return ~close(self.got, self.expected)

    @property
    def known(self) -> Alternatives:
        return self.evidence.alternatives

    @property
    def others(self) -> Array | None:
        """Every rank's part, or this rank's own if there is one rank."""
        evidence = self.evidence
        if evidence.parts is None and evidence.local is not None and evidence.world_size == 1:
            return evidence.local[None]
        return evidence.parts


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def close(a: Array, b: Array, factor: float = 1.0) -> Array:
    """Whether a equals factor * b, up to the rounding of a's dtype."""
    if a.dtype.kind != "f":
        return np.asarray(a == (b if factor == 1 else b * factor))  # a product is a float: it has 53 bits
    u = float(np.finfo(a.dtype).eps)
    a, b = a.astype(np.float64), b.astype(np.float64) * factor
    largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    return np.asarray(np.isclose(a, b, rtol=64 * u, atol=64 * u * largest + 1e-300, equal_nan=True))
