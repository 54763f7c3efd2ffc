"""The likeliest causes of a wrong array."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..causes import Cause
from ..causes.cause import Given, as_causes
from ..seeded_values import Array
from .arrays.evidence import Evidence, WrongArray, same
from .ordered_hypotheses.arrays import OF_LAST_BITS, OF_MOVED_DATA, OF_MOVED_LAST_BITS, OF_WRONG_ELEMENTS


def likely_causes(got: Array, expected: Array, evidence: Evidence) -> tuple[Cause, ...]:
    """The first explanation of all elements, or of the wrong ones; otherwise the causes that are certain anyway."""
    if got.shape != expected.shape or not expected.size:
        return as_causes(evidence.otherwise)
    with np.errstate(all="ignore"):
        explanations = _explanations(WrongArray(np.asarray(got), np.asarray(expected), evidence))
        return as_causes(next(explanations, evidence.otherwise))


def _explanations(of: WrongArray) -> Iterator[Given]:
    moved = of.evidence.moved
    if moved and not same(of.got, of.expected):
        for hypothesis in OF_MOVED_DATA:
            yield from hypothesis(of)
    right_but_last_bits = OF_MOVED_LAST_BITS if moved else OF_LAST_BITS
    for hypothesis in OF_WRONG_ELEMENTS if of.wrong.any() else right_but_last_bits:
        yield from hypothesis(of)
