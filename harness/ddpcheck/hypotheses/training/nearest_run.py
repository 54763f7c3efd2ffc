"""Finds the hypothesis whose predicted end is closest to a training run's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from .optimizer import Arrays

T = TypeVar("T")


def nearest(got: Arrays, law: Arrays, candidates: Sequence[tuple[T, Arrays]]) -> T | None:
    """The candidate with the run's end; None if none is much closer to it than the law.

    Of equally close ones the first: candidates are in order of likelihood.
    """
    found = [(_distance(got, ends), candidate) for candidate, ends in candidates]
    off = _distance(got, law)
    best = min((distance for distance, _ in found), default=np.inf)
    if best > 0.01 * off:
        return None
    return next((candidate for distance, candidate in found if distance <= best + 1e-9 * off), None)


def _distance(got: Arrays, other: Arrays) -> float:
    return max(float(np.max(abs(got[name] - other[name]), initial=0.0)) for name in other)
