"""Relations between gradients of several runs: weights by least squares, and distances in units of the tolerance.

With local gradients g_r, the synchronised G, and the mirror's M: G = sum v_r g_r describes the synchronisation, and M =
sum w_r g_r how one process weights the ranks' samples. Both are solved over all parameters of a step at once, from dot
products in float64.

A parameter's tolerance is NOISE times its measured rounding noise, plus gamma(ROUNDINGS) of the local gradients. Noise
is measured by a mirror with the samples in another order, and with inputs and parameters changed in the last place. If
the median parameter's noise is larger, it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numerics import gamma
from ..seeded_values import Array

NOISE = 32.0
MOST_NOISE = 0.05
"""More than this is no rounding: the loss depends on the order of the samples, and the noise is not measured."""
ROUNDINGS = 128
HALF_OF_SMALLEST_FLOAT16 = 2.0**-25
CLEAR = 5e-2
"""Elements above this part of the largest one have ratios that rounding does not change much."""
ALIKE = 1e-4
LOW_ROUNDINGS = 4
"""For results of products in bfloat16 or float16, whose sums are computed in float32: each rank rounds its own once."""


@dataclass(frozen=True)
class Fit:
    """target = sum weights_r * terms_r; off: the norm of the residual, by parameter."""

    weights: tuple[float, ...]
    off: Mapping[str, float]


def fit(target: Mapping[str, Array], terms: Sequence[Mapping[str, Array]]) -> Fit:
    """Weights by least squares over all parameters together; a missing parameter of a term counts as zero.

    If values are not finite, every distance is infinite.
    """
    count = len(terms)
    gram, right = np.zeros((count, count)), np.zeros(count)
    for name, wanted in target.items():
        rows = _rows(name, wanted, terms)
        gram += rows @ rows.T
        right += rows @ wanted
    if not (np.isfinite(gram).all() and np.isfinite(right).all()):
        return Fit((0.0,) * count, dict.fromkeys(target, float("inf")))
    weights = np.linalg.lstsq(gram, right, rcond=1e-12)[0] if count else np.zeros(0)
    return Fit(tuple(map(float, weights)), rests(target, terms, weights))


def rests(target: Mapping[str, Array], terms: Sequence[Mapping[str, Array]], weights: Any) -> dict[str, float]:
    """The norm of target - sum weights_r * terms_r, by parameter."""
    return {
        name: float(np.linalg.norm(wanted - np.asarray(weights) @ _rows(name, wanted, terms)))
        for name, wanted in target.items()
    }


def distances(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, float]:
    """The norm of the difference, by parameter; a missing parameter counts as zero."""
    found = {}
    for name in {**a, **b}:
        left, right = a.get(name), b.get(name)
        if left is None or right is None:
            present = left if left is not None else right
            assert present is not None
            found[name] = float(np.linalg.norm(present))
        elif left.shape != right.shape:
            found[name] = float("inf")
        else:
            found[name] = float(np.linalg.norm(left - right))
    return found


def tolerances(
    whole: Mapping[str, Array], noise: Mapping[str, Array], local: Sequence[Mapping[str, Array]], dtype: str = "float32"
) -> tuple[dict[str, float], float]:
    """The tolerance of each parameter, and the relative rounding noise of the median parameter."""
    off = distances(whole, noise) if noise else {}
    norms = {name: float(np.linalg.norm(values)) for name, values in whole.items()}
    median = _median(off, norms)
    if median > MOST_NOISE:  # the effect of the order is larger than rounding of sums
        off, median = {}, 0.0
    found = {}
    for name in {**whole, **{each: None for term in local for each in term}}:
        size = sum(float(np.linalg.norm(term[name])) for term in local if name in term) / max(len(local), 1)
        size = max(size, norms.get(name, 0.0))
        measured = max(off.get(name, 0.0), median * norms.get(name, 0.0))
        found[name] = NOISE * measured + gamma(ROUNDINGS if dtype == "float32" else LOW_ROUNDINGS, dtype) * size + 1e-30
    return found, median


def with_smallest_float16(tolerance: Mapping[str, float], whole: Mapping[str, Array], ranks: int) -> dict[str, float]:
    """Tolerances of gradients sent in float16: each rank's part, and each sum, may also be off by half the smallest
    number.
    """
    return {
        name: value + ranks * HALF_OF_SMALLEST_FLOAT16 * whole[name].size ** 0.5 if name in whole else value
        for name, value in tolerance.items()
    }


def order_matters(whole: Mapping[str, Array], noise: Mapping[str, Array]) -> bool:
    """Whether the gradient of one process changes with the order of its samples by more than rounding."""
    norms = {name: float(np.linalg.norm(values)) for name, values in whole.items()}
    return bool(noise) and _median(distances(whole, noise), norms) > MOST_NOISE


def _median(off: Mapping[str, float], norms: Mapping[str, float]) -> float:
    relative = sorted(off[name] / norms[name] for name in off if norms.get(name, 0.0) > 0)
    return relative[len(relative) // 2] if relative else 0.0


def worst(off: Mapping[str, float], tolerance: Mapping[str, float]) -> tuple[str, float]:
    """The parameter with the largest distance, and that distance in tolerances."""
    ratios = {name: value / tolerance.get(name, 1e-30) for name, value in off.items()}
    if not ratios:
        return "", 0.0
    name = max(ratios, key=lambda each: ratios[each])
    return name, ratios[name]


def factor(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: Mapping[str, float]
) -> tuple[float, float]:
    """The factor in got = factor * wanted, and the largest remaining distance, in tolerances."""
    made = fit(got, [wanted])
    found = made.weights[0]
    return found, worst(made.off, tolerance)[1] / max(abs(found), 1.0)


def factors_of_parts(got: Mapping[str, Array], wanted: Mapping[str, Array], ranks: int) -> tuple[float, ...]:
    """The different factors in got = factor * wanted, if there are 2 to `ranks` over all elements; else none.

    A rank that changes its part of split gradients alone gives that part a factor of its own.
    """
    ratios = []
    for name, values in wanted.items():
        there = got.get(name)
        if (
            there is None
            or there.shape != values.shape
            or not np.isfinite(there).all()
            or not np.isfinite(values).all()
        ):
            return ()
        large = np.abs(values) > CLEAR * np.abs(values).max(initial=0.0)
        ratios.append(there[large] / values[large])
    every = np.sort(np.concatenate(ratios)) if ratios else np.zeros(0)
    groups = np.split(every, np.flatnonzero(np.diff(every) > ALIKE * np.abs(every[1:])) + 1)
    if not 2 <= len(groups) <= ranks:
        return ()
    return tuple(float(np.median(group)) for group in groups)


def relative(off: Mapping[str, float], whole: Mapping[str, Array]) -> float:
    """The norm of all distances over the norm of all values."""
    norm = float(np.sqrt(sum(float(np.vdot(each, each)) for each in whole.values())))
    return float(np.sqrt(sum(value * value for value in off.values()))) / norm if norm else 0.0


def beyond(off: Mapping[str, float], tolerance: Mapping[str, float]) -> list[str]:
    """Parameters that are off by more than the tolerance, in order."""
    return [name for name, value in off.items() if not value <= tolerance.get(name, 1e-30)]


def _rows(name: str, wanted: Array, terms: Sequence[Mapping[str, Array]]) -> Array:
    zero = np.zeros_like(wanted)
    return np.stack([term[name] if name in term and term[name].shape == wanted.shape else zero for term in terms])
