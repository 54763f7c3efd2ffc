"""From a wrong array to its likeliest cause, in a sentence with the evidence.

A check knows what the array should be; it may also know what it would be if something specific had gone wrong (this
rank's own gradient, the last step's gradient, the sum without the tail ...). Those go in as `Evidence.alternatives`;
whole factors, untouched tails, last-bit differences and lost precision are looked for in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .numerics import different_bits, ulp_distance
from .values import Array


@dataclass(frozen=True)
class Evidence:
    """What a check knows beside the expected value.

    local: what the array would be if nothing had been communicated (this rank's own contribution).
    alternatives: (sentence, array): "it is the gradient of the step before" and that gradient.
    factors: further factors that would tell something: ("the number of accumulation steps", 4).
    before: what it was before it was updated.
    precision: whether a difference of 1e-2 or 1e-3 may come from fewer bits.
    doubt: what else a factor of the world size may come from.
    otherwise: what is sure even if nothing else fits.
    """

    world_size: int = 1
    local: Array | None = None
    alternatives: tuple[tuple[str, Array], ...] = ()
    factors: tuple[tuple[str, float], ...] = ()
    before: Array | None = None
    precision: bool = True
    doubt: str = ""
    otherwise: str = ""


def likely_cause(got: Array, expected: Array, evidence: Evidence) -> str:
    """The first explanation that fits all elements, or that fits the wrong ones; else what is sure in any case."""
    if got.shape != expected.shape or not expected.size:
        return evidence.otherwise
    with np.errstate(all="ignore"):
        return next(_explanations(np.asarray(got), np.asarray(expected), evidence), evidence.otherwise)


def _explanations(got: Array, expected: Array, evidence: Evidence) -> Iterator[str]:
    wrong = ~_close(got, expected)
    if not wrong.any():
        yield from _tiny_differences(got, expected)
        return
    if not np.isfinite(got[wrong]).all() and np.isfinite(expected).all():
        yield "the wrong elements are NaN or infinite: memory that was never written, or an overflow"
    if np.isnan(expected[wrong]).all() and not np.isnan(got[wrong]).any():
        yield f"a NaN is lost in {_region(wrong)}: a comparison drops it, depending on which rank has it"
    if not np.isfinite(expected).all():  # then a factor says nothing, and the elements are of no one size
        for sentence, array in evidence.alternatives:
            if np.array_equal(got, array, equal_nan=True):
                yield sentence
    yield from _likely_factor(got, expected, evidence)
    local = evidence.local
    if local is not None and local.shape == got.shape and not _close(local, expected).all():
        if got.any() and _close(got, local).all():  # zeros are everybody's
            yield "it is exactly this rank's own local value: not reduced"
        if got[wrong].any() and _close(got[wrong], local[wrong]).all():
            yield f"{_region(wrong)} hold this rank's own local value: that part was never reduced"
    for sentence, array in evidence.alternatives * bool(got.any()):
        if array.shape == got.shape and not _close(array, expected).all() and _close(got, array).all():
            yield sentence
    yield from _other_factor(got, expected, evidence)
    for sentence, array in evidence.alternatives * bool(got[wrong].any()):
        if array.shape == got.shape and _close(got[wrong], array[wrong]).all():
            yield f"{_region(wrong)}: {sentence}"
    if got.size > 1 and np.array_equal(np.sort(got, axis=None), np.sort(expected, axis=None), equal_nan=True):
        yield "all values are there, but in other places: a transposed or permuted layout, or blocks in a wrong order"
    yield from _shifted(got, expected, evidence, wrong)
    yield from _zeros(got, expected, wrong)
    yield from _changed_by(got, expected, evidence.before)
    yield from _lost_precision(got, expected, small=evidence.precision)
    yield from _remainder(wrong, evidence.world_size)


def _close(a: Array, b: Array, factor: float = 1.0) -> Array:
    """Equal, or equal but for the rounding of `a`'s dtype: a and factor * b."""
    if a.dtype.kind != "f":
        return np.asarray(a == (b if factor == 1 else b * factor))  # a product is a float: it has 53 bits
    u = float(np.finfo(a.dtype).eps)
    a, b = a.astype(np.float64), b.astype(np.float64) * factor
    return np.asarray(
        np.isclose(a, b, rtol=64 * u, atol=64 * u * float(np.max(np.abs(b), initial=0.0)) + 1e-300, equal_nan=True)
    )


def _likely_factor(got: Array, expected: Array, evidence: Evidence) -> Iterator[str]:
    size = evidence.world_size
    known = [
        (float(size), f"exactly {size} x too large at world size {size}: summed, not averaged{evidence.doubt}"),
        (1.0 / size, f"exactly {size} x too small at world size {size}: divided by the world size once too often"),
    ] * (size > 1)
    for name, value in evidence.factors:
        known.append((value, f"exactly {value:g} x too large: {name}"))
        known += [(1 / value, f"exactly {value:g} x too small: {name}")] * (value != 0)
    yield from _matching(got, expected, known)


def _other_factor(got: Array, expected: Array, evidence: Evidence) -> Iterator[str]:
    """Rarer factors, and any that all elements share; of one element anything is a factor."""
    size = evidence.world_size
    rarer = [
        (float(size) ** 2, f"exactly {size}^2 x too large at world size {size}: multiplied by it, and not averaged"),
        (1.0 / size**2, f"exactly {size}^2 x too small at world size {size}: divided by it rarer too often"),
    ] * (size > 1)
    if got.size not in (1, size):
        rarer.append((size / got.size, f"divided by the number of elements, {got.size}, instead of the {size} ranks"))
    yield from _matching(got, expected, rarer)
    nonzero = expected != 0
    if got.dtype.kind not in "fi" or nonzero.sum() < 2:
        return
    ratios = got[nonzero].astype(np.float64) / expected[nonzero]
    ratio = float(ratios.flat[0])
    if ratio == -1 and np.array_equal(got, -expected):
        yield "the sign is wrong"
    elif (
        np.allclose(ratios, ratio, rtol=1e-5, atol=0) and ratio != 0 and abs(ratio - 1) > 2.0**-7
    ):  # else see _lost_precision
        yield f"every element is {ratio:.6g} x what it should be: a wrong factor, the same everywhere"


def _matching(got: Array, expected: Array, factors: list[tuple[float, str]]) -> Iterator[str]:
    if got.dtype.kind in "fi" and expected.any():
        for value, sentence in factors:
            if value != 1 and _close(got, expected, value).all():
                yield sentence


def _region(wrong: Array) -> str:
    flat = np.flatnonzero(wrong)
    first, last, size = int(flat[0]), int(flat[-1]), wrong.size
    if len(flat) == size:
        return f"all {size} elements"
    run = len(flat) == last - first + 1
    if run and last == size - 1:
        return f"the last {len(flat)} of {size} elements"
    if run:
        return f"elements {first} to {last} of {size}"
    return f"{len(flat)} of {size} elements (first {first}, last {last})"


_RUN = 8
"""Elements next to one another that do not come to be alike by chance."""


def _shifted(got: Array, expected: Array, evidence: Evidence, wrong: Array) -> Iterator[str]:
    """Elements, or the other ranks' part of them, that belong elsewhere: half of the wrong ones by the same distance."""
    places = np.flatnonzero(wrong)
    if got.dtype.kind not in "fi" or len(places) < _RUN:
        return
    local = evidence.local
    for what, base in (("", None), (", but for this rank's own part,", local)):
        if what and (base is None or base.shape != got.shape):
            continue
        a, b = (array.reshape(-1).astype(np.float64) for array in (got, expected))
        if base is not None:
            a, b = a - base.reshape(-1), b - base.reshape(-1)
        first = int(places[0])
        sought = a[first : first + _RUN]
        if len(set(sought.tolist())) < _RUN // 2:
            continue
        for start in np.flatnonzero(b[: len(b) - _RUN + 1] == sought[0]).tolist():
            distance = start - first
            if distance and np.array_equal(b[start : start + _RUN], sought):
                there = places[(places + distance >= 0) & (places + distance < len(b))]
                if 4 * int((a[there] == b[there + distance]).sum()) >= len(places):
                    way = "on" if distance > 0 else "back"
                    yield (
                        f"{_region(wrong)}{what} hold what belongs {abs(distance)} elements further {way}: a buffer was filled "
                        "again before it was sent, or blocks are in a wrong order"
                    )
                    return


_SMALL = 2.0**-16
"""What a format of few bits may take for nothing."""


def _zeros(got: Array, expected: Array, wrong: Array) -> Iterator[str]:
    if got[wrong].any():
        return
    largest = float(np.max(np.abs(expected[wrong].astype(np.float64))))
    others = np.abs(expected[~wrong & (expected != 0)].astype(np.float64))
    smallest = len(others) > 0 and largest < float(others.min())
    if got.dtype.kind == "f" and (smallest or largest < _SMALL):
        yield f"{_region(wrong)} are zero, but should be small: flushed, or left out as the smallest"
    yield f"{_region(wrong)} are zero: never written, or left out"


def _changed_by(got: Array, expected: Array, before: Array | None) -> Iterator[str]:
    """Whether all elements went the same share of their way; two say so by chance only if rounding hides the rest."""
    if before is None or before.shape != got.shape or got.dtype.kind != "f":
        return
    old = before.astype(np.float64)
    went, way = got.astype(np.float64) - old, expected.astype(np.float64) - old
    moved = way != 0
    if moved.sum() < 2:
        return
    share = went[moved] / way[moved]
    rounding = 64 * float(np.finfo(got.dtype).eps) * np.abs(old[moved]) / np.abs(way[moved])
    middle = float(np.median(share))
    if np.isfinite(share).all() and (np.abs(share - middle) <= rounding).all() and float(rounding.max()) < 0.01:
        yield f"it went {middle:.4g} x the way that it should: by another learning rate, or clipped by another norm"


def _remainder(wrong: Array, world_size: int) -> Iterator[str]:
    tail = int(wrong.sum())
    parts = [parts for parts in range(2, world_size + 1) if wrong.size % parts == tail]
    if parts and tail < wrong.size and wrong.reshape(-1)[-tail:].all():
        yield f"only {_region(wrong)} are wrong: the remainder of a division into {parts[0]} parts"


def _tiny_differences(got: Array, expected: Array) -> Iterator[str]:
    if got.dtype != expected.dtype or got.dtype.kind != "f":
        return
    differ = different_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected))
    if differ.any():
        worst = int(ulp_distance(got, expected).max())
        yield (
            f"{int(differ.sum())} of {got.size} elements differ in the last bits (at most {worst} ulp): another order "
            "of additions, or an extra rounding"
        )


def _lost_precision(got: Array, expected: Array, *, small: bool) -> Iterator[str]:
    if got.dtype.kind == "i":
        differ = got != expected
        wrong = np.abs(expected[differ].astype(np.float64))  # an integer's lowest value has no absolute one
        error = np.abs(got[differ].astype(np.float64) - expected[differ].astype(np.float64))
        overflow = wrong >= 2.0**62  # the largest integers round up to a float that is no integer of this dtype
        for name, bits in (("float64", 53), ("float32", 24)):
            if (wrong > 2.0**bits - 1).all() and (overflow | (error <= wrong * 2.0 ** (2 - bits))).all():
                yield f"only integers of more than {bits} bits are wrong: computed or sent as {name}"
                return
    if got.dtype.kind != "f":
        return
    finite = np.isfinite(expected) & (expected != 0)
    if not finite.any() or not np.isfinite(got).all():
        return
    error = float(np.max(np.abs(got[finite] - expected[finite]) / np.max(np.abs(expected[finite]))))
    for name, bits, dtypes in (("float32", 24, "d"), ("float16", 11, "df" * small), ("bfloat16", 8, "df" * small)):
        if got.dtype.char in dtypes and error < 2.0 ** (2 - bits):
            yield f"the relative error is {error:.1e}, as in {name}: computed or sent with fewer bits than {got.dtype}"
            return
