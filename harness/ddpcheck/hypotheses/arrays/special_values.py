"""Wrong NaN and infinities; and arrays that were not reduced."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, collectives, values
from ...causes.cause import Given, as_causes
from ...numerics import LARGEST
from ...seeded_values import Array
from .evidence import WrongArray, close
from .few_bits import all_fit
from .wrong_elements import elements


def nonfinite(of: WrongArray) -> Iterator[Given]:
    """NaN or infinity where a number should be: an overflow of float16, or another reason."""
    if not np.isfinite(of.got[of.wrong]).all() and np.isfinite(of.expected).all():
        yield from _overflown(of)
        yield (values.NONFINITE(), *as_causes(of.evidence.otherwise))


def infinity_becomes_nan(of: WrongArray) -> Iterator[Cause]:
    """NaN wherever an infinity should be, and only there; for single numbers, many other hypotheses give NaN, too."""
    got, wrong = of.got, of.wrong
    if got.dtype.kind == "f" and np.isnan(got[wrong]).all() and np.isinf(of.expected[wrong]).all():
        yield collectives.INFINITY_BECOMES_NAN()


def nan_lost(of: WrongArray) -> Iterator[Cause]:
    """A number in place of NaN."""
    if np.isnan(of.expected[of.wrong]).all() and not np.isnan(of.got[of.wrong]).any():
        yield values.NAN_LOST().among(elements(of.wrong))


def not_reduced(of: WrongArray) -> Iterator[Cause]:
    """This rank's own contribution. Zeros are the contribution of any rank."""
    local = _telling_contribution(of)
    if local is not None and of.got.any() and close(of.got, local).all():
        yield values.NOT_REDUCED()


def part_not_reduced(of: WrongArray) -> Iterator[Cause]:
    """This rank's own contribution in the wrong elements."""
    local, got, wrong = _telling_contribution(of), of.got, of.wrong
    if local is not None and got[wrong].any() and close(got[wrong], local[wrong]).all():
        yield values.PART_NOT_REDUCED().among(elements(wrong))


def _telling_contribution(of: WrongArray) -> Array | None:
    """This rank's own contribution; None if it is unknown, or as expected."""
    local = of.evidence.local
    if local is None or local.shape != of.got.shape or close(local, of.expected).all():
        return None
    return local


def _overflown(of: WrongArray) -> Iterator[Cause]:
    """Whether exactly the elements outside float16's range are infinite, except values that cancel in a mean."""
    infinite = np.isinf(of.got)
    if not infinite.any() or np.isnan(of.got).any() or of.got.dtype.char not in "df":
        return
    most, large, others = LARGEST["float16"], np.abs(of.expected[infinite]), of.got[~infinite]
    if large.min() > most / 8 and (np.abs(others) <= most).all() and all_fit(others, 11):
        yield values.OVERFLOW_FLOAT16().among(elements(infinite))
