"""Hypotheses about a clipped gradient: other ways of clipping."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...oracle.bounded_values import by_rank
from ...oracle.clipping import TINY, Clip
from ...seeded_values import Array


def clipped_otherwise(clip: Clip, name: str) -> Iterator[tuple[Cause, Array]]:
    """The gradient of this name, clipped in other ways."""
    gradient, limit = clip.before[name], clip.max_norm
    norms = np.sqrt(sum(_sum(other**2) for other in clip.before.values()))
    largest = np.max(
        [abs(other.reshape(len(norms), -1)).max(axis=1, initial=0) for other in clip.before.values()], axis=0
    )
    if limit == 0:
        yield causes.CLIP_OFF_AT_ZERO(), gradient
    yield causes.NOT_CLIPPED(), gradient
    if not norms.any():
        yield causes.DIVIDED_BY_ZERO_NORM(), _nan(gradient)
    if np.isinf(limit):
        yield causes.INFINITE_CLIP_NAN(), _nan(gradient)
        yield causes.INFINITE_CLIP_SCALES(), _infinite(gradient)
    yield causes.CLIPPED_BY_OWN_NORM(), _scaled(gradient, _sum(gradient**2) ** 0.5, limit)
    yield causes.CLIPPED_BY_ELEMENT(), np.clip(gradient, -limit, limit)
    yield causes.CLIPPED_BY_LARGEST(), _scaled(gradient, largest, limit)
    if np.isfinite(limit):
        yield causes.SCALED_UP_TO_LIMIT(), _scaled(gradient, norms, limit, most=np.inf)
    yield causes.CLIPPED_TWICE(), _scaled(gradient, norms**2, limit**2)
    for part in (*_parts([*clip.before], name), *_of_one_dtype(clip, name)):
        norm = np.sqrt(sum(_sum(clip.before[other] ** 2) for other in part))
        yield causes.CLIPPED_BY_GROUPS(parameters=tuple(part)), _scaled(gradient, norm, limit)
    for guard in _LARGE_GUARDS:
        yield causes.CLIP_GUARD(guard=guard), _scaled(gradient, norms + guard, limit)


def clipped_as_asked(clip: Clip, name: str) -> Array:
    """The gradient of this name, clipped by the global norm."""
    norms = np.sqrt(sum(_sum(other**2) for other in clip.before.values()))
    return _scaled(clip.before[name], norms, clip.max_norm)


def _parts(names: list[str], name: str) -> list[list[str]]:
    """Sequences of two or more parameters from either end that contain this one; for few parameters."""
    places = range(1, len(names)) if len(names) <= _FEW else ()
    return [part for place in places for part in (names[:place], names[place:]) if name in part and len(part) > 1]


def _of_one_dtype(clip: Clip, name: str) -> list[list[str]]:
    """The parameters of this one's dtype, if there are others."""
    alike = [other for other, dtype in clip.dtypes.items() if dtype == clip.dtypes[name]]
    return [alike] if 1 < len(alike) < len(clip.dtypes) else []


_FEW = 8
_LARGE_GUARDS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)


def _scaled(gradient: Array, norms: Array, limit: float, most: float = 1.0) -> Array:
    factors = np.minimum(most, limit / np.maximum(norms, TINY))
    return np.asarray(gradient * by_rank(factors, gradient))


def _nan(gradient: Array) -> Array:
    return np.full_like(gradient, np.nan)


def _infinite(gradient: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(gradient * np.inf)


def _sum(squares: Array) -> Array:
    return np.asarray(squares.reshape(len(squares), -1).sum(axis=1))
