"""The likeliest causes of a wrong array: the questions, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...causes import Cause, values
from ...causes.cause import Given, as_causes
from ...seeded_values import Array
from .lost_precision import narrowed, sent_as
from .low_rank import low_rank
from .offset import offset
from .patterns import (
    SUMS,
    all_fit,
    changed_by,
    clamped,
    cut_off,
    lost_precision,
    overflown,
    thinned,
    tiny_differences,
    weighted,
    zeros,
)
from .tiny_updates import crept
from .wrong_elements import elements, remainder, seams, shifted, tail

Alternatives = tuple[tuple[Cause, Array], ...]
"""Causes, each with the array that it would give."""


@dataclass(frozen=True)
class Evidence:
    """The knowledge of a check beside the expected value.

    local: the array if nothing had been communicated (this rank's own contribution).
    alternatives: (cause, array): the array that each cause would give.
    before: the array before the update.
    idle: the array after an update by a gradient of zero; the update adds its gradient times a number to it.
    precision: whether a difference of 1e-2 or 1e-3 may come from fewer bits.
    doubt: what else a factor of the world size may come from. less: what else may have divided by so much.
    parts: what every rank has put in, with the ranks as first axis.
    otherwise: causes that are sure even if nothing else fits.
    bound: by how much rounding may change each element, where that is more than a few last bits.
    moved: nothing was computed, so that an element is right or wrong by itself, however small it is beside others.
    """

    world_size: int = 1
    local: Array | None = None
    alternatives: Alternatives = ()
    before: Array | None = None
    idle: Array | None = None
    precision: bool = True
    doubt: Given = ()
    less: Given = ()
    otherwise: Given = ()
    parts: Array | None = None
    bound: Array | None = None
    moved: bool = False


Explanation = Given


def likely_causes(got: Array, expected: Array, evidence: Evidence) -> tuple[Cause, ...]:
    """The first explanation of all elements, or of the wrong ones; otherwise the causes that are certain anyway."""
    if got.shape != expected.shape or not expected.size:
        return as_causes(evidence.otherwise)
    with np.errstate(all="ignore"):
        return as_causes(next(_explanations(np.asarray(got), np.asarray(expected), evidence), evidence.otherwise))


def _explanations(got: Array, expected: Array, evidence: Evidence) -> Iterator[Explanation]:
    if evidence.moved:
        yield from _elsewhere(got, expected, evidence)
    wrong = ~_close(got, expected)
    if not wrong.any():
        if evidence.moved:
            yield from _changed_on_the_way(got, expected)
            return
        yield from _nearer(got, expected, evidence.alternatives)
        yield from tiny_differences(got, expected)
        return
    if (
        not np.isfinite(expected).all() or np.isnan(got).any()
    ):  # a factor says nothing, and the elements are of no one size
        for cause, array in evidence.alternatives:
            if np.array_equal(got, array, equal_nan=True):
                yield cause
    if not np.isfinite(got[wrong]).all() and np.isfinite(expected).all():
        yield from overflown(got, expected)
        yield (values.NONFINITE(), *as_causes(evidence.otherwise))
    if np.isnan(expected[wrong]).all() and not np.isnan(got[wrong]).any():
        yield values.NAN_LOST().among(elements(wrong))
    yield from _likely_factor(got, expected, evidence)
    local = evidence.local
    if local is not None and local.shape == got.shape and not _close(local, expected).all():
        if got.any() and _close(got, local).all():  # zeros are everybody's
            yield values.NOT_REDUCED()
        if got[wrong].any() and _close(got[wrong], local[wrong]).all():
            yield values.PART_NOT_REDUCED().among(elements(wrong))
    yield from crept(got, expected, evidence.before)
    yield from _nearest(got, expected, evidence.alternatives * bool(got.any()))
    yield from _other_factor(got, expected, evidence)
    searched = Counter(cause for cause, _ in evidence.alternatives) if wrong.sum() < _BY_CHANCE else Counter()
    for cause, array in evidence.alternatives:
        # zeros come of much else, but for what says that all is zero; one zero is anybody's
        telling = got[wrong].any() or (got.size > 1 and not array.any())
        if telling and searched[cause] < _MANY and array.shape == got.shape and _close(got[wrong], array[wrong]).all():
            yield cause.among(elements(wrong))
    yield from _within_rounding(got, expected, evidence)
    if evidence.parts is not None:
        yield from narrowed(got, expected, evidence.parts)
    elif local is not None and evidence.world_size == 1:
        yield from narrowed(got, expected, local[None])
    if got.size > 1 and np.array_equal(np.sort(got, axis=None), np.sort(expected, axis=None), equal_nan=True):
        yield values.PERMUTED()
    if evidence.parts is not None:
        yield from clamped(got, expected, evidence.parts)
        yield from weighted(got, expected, evidence.parts)
    yield from shifted(got, expected, evidence.local, wrong)
    yield from zeros(got, expected, wrong)
    yield from cut_off(got, expected, wrong)
    if evidence.parts is not None:
        yield from thinned(got, expected, evidence.parts)
    if evidence.before is None or evidence.idle is not None:
        yield from low_rank(got, expected, evidence.idle, evidence.bound)
    yield from changed_by(got, expected, evidence.before)
    yield from offset(got, expected)
    yield from lost_precision(got, expected, small=evidence.precision)
    yield from remainder(wrong, evidence.world_size)
    yield from seams(wrong)
    yield from tail(wrong, got.itemsize)


_BY_CHANCE, _MANY = 3, 8
"""Fewer matching elements than this may be a coincidence, among the many arrays searched."""
_NEARLY_ALL = 0.99
"""A share of the elements: values rounded to few bits on the way may round the other way here and there."""
_APART = 8
"""The smallest distance at which two hypotheses are distinguished, in units of the rounding."""


def _nearer(got: Array, expected: Array, alternatives: Sequence[tuple[Cause, Array]]) -> Iterator[Cause]:
    """What explains a difference of some last bits to the very last ones, as where a small step is a little too small."""
    if got.dtype.kind != "f" or got.size < 2:
        return
    near = 4 * float(np.finfo(got.dtype).eps) * float(np.abs(got).max())
    for cause, array in alternatives:
        if array.shape == got.shape and (abs(got - array) <= near).all() and (abs(array - expected) > 4 * near).any():
            yield cause


def _nearest(got: Array, expected: Array, alternatives: Sequence[tuple[Cause, Array]]) -> Iterator[Cause]:
    """The explanation of all elements: the first that is as near as the nearest one, up to some last bits."""
    found = [
        (cause, float(np.max(np.abs(got.astype(np.float64) - array), initial=0.0)))
        for cause, array in alternatives
        if array.shape == got.shape and not _close(array, expected).all() and _close(got, array).all()
    ]
    if not found:
        return
    unit = float(np.finfo(got.dtype).eps) if got.dtype.kind == "f" else 0.0
    near = 8 * unit * float(np.abs(got).max()) + min(off for _, off in found)
    yield from (cause for cause, off in found if not off > near)


def _within_rounding(got: Array, expected: Array, evidence: Evidence) -> Iterator[Cause]:
    """The explanation of an array of sums of many terms, whose last bits are arbitrary."""
    bound = evidence.bound
    if bound is None or got.dtype.kind != "f" or not np.isfinite(bound).all():
        return
    seen = got.astype(np.float64)
    if (abs(seen) <= bound).all():  # zeros come of much else
        return
    for cause, array in evidence.alternatives:
        if array.shape != got.shape or not (abs(array - expected) > _APART * bound).any():
            continue
        if (abs(seen - array) <= bound).mean() >= _NEARLY_ALL:
            yield cause


def _elsewhere(got: Array, expected: Array, evidence: Evidence) -> Iterator[Cause]:
    """Causes for data that was only moved, or that equals a hypothesis in every bit."""
    if _same(got, expected):
        return
    for cause, array in evidence.alternatives:
        if _same(got, array):
            yield cause
    if got.size > 1 and _same(np.sort(got, axis=None), np.sort(expected, axis=None)):
        yield values.PERMUTED()
    yield from sent_as(got, expected)


def _changed_on_the_way(got: Array, expected: Array) -> Iterator[Cause]:
    differ = ~(np.equal(got, expected) | (np.isnan(got) & np.isnan(expected)))
    if differ.any():
        yield from zeros(got, expected, differ)
        yield values.BITS_CHANGED().among(elements(differ))


def _same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _close(a: Array, b: Array, factor: float = 1.0) -> Array:
    """Whether a equals factor * b, up to the rounding of a's dtype."""
    if a.dtype.kind != "f":
        return np.asarray(a == (b if factor == 1 else b * factor))  # a product is a float: it has 53 bits
    u = float(np.finfo(a.dtype).eps)
    a, b = a.astype(np.float64), b.astype(np.float64) * factor
    largest = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
    return np.asarray(np.isclose(a, b, rtol=64 * u, atol=64 * u * largest + 1e-300, equal_nan=True))


def _likely_factor(got: Array, expected: Array, evidence: Evidence) -> Iterator[Explanation]:
    size = evidence.world_size
    known: list[tuple[float, Explanation]] = [
        (float(size), (values.SUMMED_NOT_AVERAGED(world_size=size), *as_causes(evidence.doubt))),
        (1.0 / size, (values.DIVIDED_TOO_OFTEN(world_size=size), *as_causes(evidence.less))),
    ] * (size > 1)
    yield from _matching(got, expected, known)


def _other_factor(got: Array, expected: Array, evidence: Evidence) -> Iterator[Explanation]:
    """Rarer factors, and any that all elements share; of one element anything is a factor."""
    size = evidence.world_size
    rarer: list[tuple[float, Explanation]] = [
        (float(size) ** 2, values.MULTIPLIED_NOT_AVERAGED(world_size=size)),
        (1.0 / size**2, values.DIVIDED_TWICE_TOO_OFTEN(world_size=size)),
    ] * (size > 1)
    if got.size not in (1, size):
        rarer.append((size / got.size, values.DIVIDED_BY_ELEMENTS(size=got.size, world_size=size)))
    yield from _matching(got, expected, rarer)
    nonzero = (expected != 0) & np.isfinite(expected)
    if got.dtype.kind not in "fi" or nonzero.sum() < 2 or not _close(got[~nonzero], expected[~nonzero]).all():
        return
    ratios = got[nonzero].astype(np.float64) / expected[nonzero]
    ratio = float(ratios.flat[0])
    if ratio == -1 and np.array_equal(got, -expected):
        yield values.WRONG_SIGN()
    elif ratio != 0 and _all_equal(ratios, ratio, got[nonzero], expected[nonzero]):
        cause = _factor(ratio, size)
        if not values.WRONG_FACTOR.explains([cause]) or len(np.unique(np.abs(expected[nonzero]))) > 1:
            yield cause  # numbers of one size have any factor


def _factor(ratio: float, size: int) -> Cause:
    """The cause of one factor for all elements."""
    divisor = size / ratio
    if size > 1 and 1.5 < divisor <= 2 * size and abs(divisor - round(divisor)) < 1e-4:
        return values.WRONG_DIVISOR(divisor=round(divisor), world_size=size, factor=ratio)
    if abs(np.log2(abs(ratio))) in _LOSS_SCALES:
        return values.LOSS_SCALE_KEPT(factor=ratio)
    return values.WRONG_FACTOR(factor=ratio)


def _all_equal(ratios: Array, ratio: float, got: Array, expected: Array) -> bool:
    """Whether it is one factor. One that is nearly 1 might be lost precision, which leaves few bits, and goes up here and down
    there: only numbers of different digits tell, two of them by their last bits.
    """
    off = abs(ratio - 1)
    if off > _NEARLY_ONE:
        return bool(np.allclose(ratios, ratio, rtol=1e-5, atol=0))
    if all_fit(got, SUMS + (24 if got.itemsize == 8 else 11)):
        return False
    u = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0.0
    different = len(np.unique(np.abs(np.frexp(expected.astype(np.float64))[0])))
    apart = max(4 * u, 0.02 * off if different > 2 else 0.0)
    return off > 64 * u > 0 and different > 1 and bool(np.allclose(ratios, ratio, rtol=0, atol=apart))


_NEARLY_ONE = 2.0**-7
_LOSS_SCALES = range(7, 33)
"""Powers of two that no number of ranks, micro-batches or samples here is."""


def _matching(got: Array, expected: Array, factors: list[tuple[float, Explanation]]) -> Iterator[Explanation]:
    if got.dtype.kind in "fi" and expected.any():
        for value, cause in factors:
            if value != 1 and _close(got, expected, value).all():
                yield cause
