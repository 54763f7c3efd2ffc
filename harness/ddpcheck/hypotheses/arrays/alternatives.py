"""Compares an array with the arrays that the check's own hypotheses predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ...causes import Cause, gradients, updates
from ...causes.cause import Given
from .evidence import WrongArray, close, same
from .wrong_elements import elements

_BY_CHANCE, _MANY = 3, 8
"""Fewer matching elements than this may be a coincidence, among the many arrays searched."""
_IN_NO_PART = frozenset({gradients.AT_OWN_INITIAL.id, gradients.SUMMED_AT_OWN_INITIAL.id})
"""Causes that change whole arrays: a few elements match by coincidence."""
_MAY_BE_ZERO = frozenset({updates.UPDATED_BY_OWN.id})
"""Causes that explain no elements which were updated by zero: the gradients of one rank are often zero somewhere."""
_DOUBTFUL = 0.05
"""A match is doubtful if at least this many are expected by chance."""
_NEARLY_ALL = 0.99
"""A share of the elements: values rounded to few bits in between may sometimes round the other way."""
_APART = 8
"""The smallest distance at which two hypotheses are distinguished, in units of the rounding."""


def every_bit(of: WrongArray) -> Iterator[Cause]:
    """The dtype and all bits are those of a hypothesis."""
    yield from (cause for cause, array in of.known if same(of.got, array))


def every_element(of: WrongArray) -> Iterator[Cause]:
    """For arrays with NaN or infinity, where factors prove nothing and elements have no common size."""
    if not np.isfinite(of.expected).all() or np.isnan(of.got).any():
        yield from (cause for cause, array in of.known if np.array_equal(of.got, array, equal_nan=True))


def last_bits(of: WrongArray) -> Iterator[Cause]:
    """A difference in some last bits must be explained to the last bit, as for a small step that is slightly too
    small.
    """
    got = of.got
    if got.dtype.kind != "f" or got.size < 2:
        return
    near = 4 * float(np.finfo(got.dtype).eps) * float(np.abs(got).max())
    for cause, array in of.known:
        if (
            array.shape == got.shape
            and (abs(got - array) <= near).all()
            and (abs(array - of.expected) > 4 * near).any()
        ):
            yield cause


def nearest(of: WrongArray) -> Iterator[Given]:
    """The explanations of all elements that are as close as the closest one, up to some last bits: the first of each
    kind, as values cannot tell them apart. A match that may be a coincidence is only possible.
    """
    got = of.got
    found = [
        (cause, float(np.max(np.abs(got.astype(np.float64) - array), initial=0.0)))
        for cause, array in (of.known if got.any() else ())
        if array.shape == got.shape and not close(array, of.expected).all() and close(got, array).all()
    ]
    if not found:
        return
    unit = float(np.finfo(got.dtype).eps) if got.dtype.kind == "f" else 0.0
    near = 8 * unit * float(np.abs(got).max()) + min(off for _, off in found)
    fitting: dict[str, Cause] = {}
    for cause, off in found:
        if not off > near:
            fitting.setdefault(cause.id, cause.but("possible") if _by_chance(of, cause.id) else cause)
    yield tuple(fitting.values())


def _by_chance(of: WrongArray, kind: str) -> bool:
    """Whether one of many arrays of this kind of cause may match by coincidence: few elements, whose values are frequent
    among the arrays of the kind.
    """
    got = of.got
    arrays = [array for cause, array in of.known if cause.id == kind and array.shape == got.shape]
    if len(arrays) < _MANY:
        return False
    equal = np.array([close(array, got) for array in arrays]).reshape(len(arrays), -1)
    frequency = np.maximum(equal.sum(axis=0) - 1, 0) / (len(arrays) - 1)  # without the match itself
    return bool(len(arrays) * frequency.prod() >= _DOUBTFUL)


def wrong_elements(of: WrongArray) -> Iterator[Cause]:
    """The explanation of the wrong elements, if no hypothesis explains all."""
    got, wrong, idle = of.got, of.wrong, of.evidence.idle
    searched = Counter(cause for cause, _ in of.known) if wrong.sum() < _BY_CHANCE else Counter()
    never = _IN_NO_PART
    if idle is not None and close(got, idle)[wrong].all():
        never = never | _MAY_BE_ZERO
    for cause, array in of.known:
        # zeros have many causes, so only a cause that predicts all zeros counts; a single zero proves nothing
        telling = cause.id not in never and (got[wrong].any() or (got.size > 1 and not array.any()))
        if telling and searched[cause] < _MANY and array.shape == got.shape and close(got[wrong], array[wrong]).all():
            yield cause.among(elements(wrong))


def within_rounding(of: WrongArray) -> Iterator[Cause]:
    """The explanation of an array of sums of many terms, whose last bits are arbitrary."""
    got, bound = of.got, of.evidence.bound
    if bound is None or got.dtype.kind != "f" or not np.isfinite(bound).all():
        return
    seen = got.astype(np.float64)
    if (abs(seen) <= bound).all():  # zeros have many causes
        return
    for cause, array in of.known:
        if array.shape != got.shape or not (abs(array - of.expected) > _APART * bound).any():
            continue
        if (abs(seen - array) <= bound).mean() >= _NEARLY_ALL:
            yield cause
