"""Hypotheses about the global norm that a clip returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from types import MappingProxyType

import numpy as np

from ..causes import updates as causes
from ..oracle.origins import Norm
from ..seeded_values import Array
from .arrays import Alternatives


def of_norm(origin: Norm) -> Alternatives:
    """The norm on every rank for each mistake."""
    own = {name: origin.history.own(name) for name in origin.uses}
    used = {name: gradient for name, gradient in own.items() if gradient is not None}
    return norms_of(used, origin.max_norm, origin.uses)


def norms_of(own: Mapping[str, Array], limit: float, uses: Mapping[str, int] = MappingProxyType({})) -> Alternatives:
    """The norm on every rank for each mistake. own: each rank's gradients, by name, with the ranks as first axis. uses: the
    number of layers that use each parameter.
    """
    flat = {name: gradient.reshape(len(gradient), -1) for name, gradient in own.items()}
    if not flat:
        return ()
    each = np.concatenate([*flat.values()], axis=1)
    local = np.sqrt((each**2).sum(axis=1))
    mean = each.mean(axis=0)
    norm = np.sqrt((mean**2).sum())
    squares = {name: (gradient.mean(axis=0) ** 2).sum() for name, gradient in flat.items()}
    norms = np.sqrt([*squares.values()])
    size = len(local)
    tied = tuple(name for name in squares if uses.get(name, 1) > 1)
    told = [
        *((causes.NORM_COUNTS_USES(parameters=tied), _by_uses(squares, uses)),) * bool(tied),
        (causes.NORM_IS_LARGEST(), abs(mean).max(initial=0.0)),
        (causes.NORM_IS_SUM(), abs(mean).sum()),
        (causes.NORM_IS_SUM_OF_NORMS(), norms.sum()),
        (causes.NORM_SQUARED_AGAIN(), np.sqrt((norms**4).sum())),
        *((causes.NORM_COUNTS_TWICE(parameter=name), np.sqrt(norm**2 + square)) for name, square in squares.items()),
    ]
    told += [
        # without the largest gradients, rounding may leave less than zero
        (
            causes.NORM_LEAVES_OUT(parameters=tuple(left)),
            np.sqrt(max(0.0, norm**2 - sum(squares[name] for name in left))),
        )
        for left in (*([name] for name in squares), *_of_layers(squares))
    ]
    if size > 1:
        told.append((causes.NORM_SUMMED_OVER_RANKS(world_size=size), np.sqrt(size) * norm))
    return (
        *((cause, np.full_like(local, number)) for cause, number in told),
        (causes.NORM_OF_OWN(), local),
        (causes.NORM_LARGEST_OF_RANKS(), np.full_like(local, local.max())),
        (causes.NORM_AFTER_CLIP(), np.full_like(local, min(norm, limit))),
        (causes.NORM_STALE(), np.full_like(local, norm)),
        (causes.NORM_SQUARE(), np.full_like(local, norm**2)),
        (causes.NORM_OF_ONE(), np.full_like(local, norms.max())),
    )


def _by_uses(squares: Mapping[str, float], uses: Mapping[str, int]) -> float:
    """The norm that counts each parameter once for every layer that uses it."""
    return float(np.sqrt(sum(uses[name] * square for name, square in squares.items())))


def _of_layers(names: Iterable[str]) -> Iterator[list[str]]:
    """The parameters of each layer that has several, and of every two of a few layers."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    yield from (several for several in layers.values() if len(several) > 1)
    if len(layers) <= _FEW_LAYERS:
        yield from (first + second for first, second in combinations(layers.values(), 2))


_FEW_LAYERS = 8
"""With more layers, some pair would explain a number by chance."""
