"""The network's values, with bounds on the effects of rounding and of inexact parameters (derivation: network.py).

With parameters p known up to e, M the majorant network and m roundings:

    |computed - exact| <= gamma_m M(|p| + e) + (M(|p| + e) - M(|p|))

The first term is rounding, the second sensitivity. gamma_m of float64 is added for the oracle's own roundings. A relu
whose input may have either sign may pass its gradient or not, so its bound is infinite. The bound is also infinite
where M(|p| + e) leaves the dtype's range, because a part of the sum may then be infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import numpy as np

from ..models.spec import ModelSpec
from ..numerics import gamma
from ..seeded_values import Array
from .bounded_values import Value
from .network import Evaluation, Shards, evaluate, has_majorant, outputs
from .rounding_count import roundings

Values = Mapping[str, Value]


def share(model: ModelSpec, rows: int, *, weighted: bool = False) -> float:
    """weighted: samples have weights. Their sum has rows - 1 further roundings, and a weight's share of it three."""
    rounds = roundings(model, rows) + (rows + 2) * weighted
    return gamma(rounds, model.dtype) + gamma(rounds, np.float64)


def exact_parts(values: Values) -> dict[str, Array]:
    return {name: value.exact for name, value in values.items()}


def of_training(
    model: ModelSpec, learned: Values, fixed: Values, shards: Shards, found: Evaluation
) -> tuple[Array, dict[str, Array]]:
    """Bounds on every rank's loss, and on its gradients by name. fixed: tensors that are frozen now, and may have been
    trained.
    """
    values = {**learned, **fixed}
    unsure = _uncertainty(values)
    if not has_majorant(model) or not isfinite(unsure):
        return np.full(len(shards.counts), np.inf), {
            name: np.full(learned[name].exact.shape, np.inf) for name in found.gradients
        }
    exact = exact_parts(values)
    if not unsure:
        low = high = evaluate(model, *_apart(exact, learned), shards, majorant=True)
    else:  # ranks are an axis, so both evaluations are one pass through the network
        both = evaluate(model, *_apart(_twice(exact, _moved(values)), learned), shards.twice(), majorant=True)
        low, high = both.halves()
    rounding = share(model, shards.inputs.shape[1], weighted=shards.weights is not None)
    errors = {name: rounding * top + (top - low.gradients[name]) for name, top in high.gradients.items()}
    doubtful = np.zeros(len(shards.counts), bool)
    for z, top, bottom in zip(found.kinks, high.kinks, low.kinks, strict=True):
        doubtful |= (abs(z) <= rounding * top + (top - bottom)).any(axis=(1, 2))
    beyond = ~(high.losses <= np.finfo(model.dtype).max)
    for rank in np.flatnonzero(doubtful | beyond):
        for name in errors:
            errors[name][rank] = np.inf
    return np.where(beyond, np.inf, rounding * high.losses + (high.losses - low.losses)), errors


def of_outputs(model: ModelSpec, tensors: Values, shards: Shards) -> Array:
    """Bounds on every rank's outputs in evaluation mode."""
    unsure = _uncertainty(tensors)
    if not has_majorant(model) or not isfinite(unsure):
        return np.full((*shards.inputs.shape[:2], model.output_features), np.inf)
    low = outputs(model, {name: abs(value.exact) for name, value in tensors.items()}, shards, majorant=True)
    high = outputs(model, _moved(tensors), shards, majorant=True) if unsure else low
    beyond = ~(high <= np.finfo(model.dtype).max)
    return np.where(beyond, np.inf, share(model, shards.inputs.shape[1]) * high + (high - low))


def _uncertainty(values: Values) -> float:
    """The total error of all values: 0 if all are exact, infinite or NaN if one has no bound."""
    return float(sum(np.add.reduce(value.error, axis=None) for value in values.values() if value.error is not None))


def _apart(values: Mapping[str, Array], learned: Values) -> tuple[dict[str, Array], dict[str, Array]]:
    """The trained tensors, and the others."""
    return {name: values[name] for name in learned}, {n: array for n, array in values.items() if n not in learned}


def _twice(first: Mapping[str, Array], second: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.concatenate([array, second[name]]) for name, array in first.items()}


def _moved(values: Values) -> dict[str, Array]:
    """|p| + e."""
    return {n: abs(v.exact) if v.error is None else abs(v.exact) + v.error for n, v in values.items()}
