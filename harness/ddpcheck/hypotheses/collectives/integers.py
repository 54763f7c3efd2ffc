"""Hypotheses about reductions of integers: computed in another dtype."""

from __future__ import annotations

import math

import numpy as np

from ...causes import collectives as causes
from ..arrays.evidence import WhatIf
from .evidence import WrongResult


def sums_of_integers(of: WrongResult, reduction: str) -> WhatIf:
    """Sums and products that saturate, or are computed in floats."""
    stack, by_sum = np.stack(of.parts), reduction == "sum"
    limits, whole = np.iinfo(stack.dtype), sum if by_sum else math.prod
    columns = stack.reshape(len(stack), -1).T.tolist()
    cut = np.array([min(max(whole(column), limits.min), limits.max) for column in columns], stack.dtype)
    yield causes.INTEGERS_SATURATE(), cut.reshape(stack.shape[1:])
    for dtype, bits in (("float64", 53), ("float32", 24)):
        floats = stack.astype(dtype)
        cause = causes.INTEGERS_COMPUTED_AS(dtype=dtype, bits=bits)
        yield cause, floats.sum(axis=0) if by_sum else floats.prod(axis=0)


def unsigned_as_signed(of: WrongResult, reduction: str) -> WhatIf:
    """Extremes of unsigned integers computed as signed: the opposite extreme where one value has the highest bit."""
    stack = np.stack(of.parts)
    if stack.dtype.kind == "u" and reduction in ("min", "max"):
        extreme = np.minimum if reduction == "min" else np.maximum
        signed = stack.view(stack.dtype.name[1:])
        yield causes.UNSIGNED_AS_SIGNED(), extreme.reduce(signed, axis=0).view(stack.dtype)


def extremes_of_integers(of: WrongResult, reduction: str) -> WhatIf:
    """Extremes of integers computed as signed, or as the opposite extreme of negated ones."""
    yield from unsigned_as_signed(of, reduction)
    stack, opposite = np.stack(of.parts), np.maximum if reduction == "min" else np.minimum
    yield causes.EXTREME_BY_NEGATION(dtype=stack.dtype.name), -opposite.reduce(-stack, axis=0)


def other_integers(of: WrongResult, reduction: str) -> WhatIf:
    """Reductions of integers in another dtype."""
    yield from (sums_of_integers if reduction in ("sum", "prod") else extremes_of_integers)(of, reduction)
