"""Deterministic numbers: a Job gives a seed, from which every rank and the oracle generate the same numbers.

A counter-based generator (the finalizer of SplitMix64, Steele, Lea and Flood, OOPSLA 2014) takes a few microseconds for
a small array; seeding a NumPy generator takes longer than a whole training step of a small model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_Words = np.ndarray[Any, np.dtype[np.uint64]]
Kind = Literal["lattice", "real", "powers", "nonfinite", "special", "tiny", "sparse", "even", "patchy"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def key_of(*parts: int) -> int:
    """One 64-bit key from several integers; (1, 2) and (2, 1) give different keys."""
    key = 0
    for part in parts:
        key = _mix((key + _GOLDEN + part) & _MASK)
    return key


_STRIDE, _FIRST, _SECOND = (np.uint64(word) for word in (_GOLDEN, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_27, _30, _31 = (np.uint64(bits) for bits in (27, 30, 31))


def hashed(count: int, key: int, first: int = 0) -> _Words:
    """`count` uniform 64-bit words from position `first` on, the same for the same key."""
    x = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    x *= _STRIDE
    x += np.uint64(key)
    x ^= x >> _30
    x *= _FIRST
    x ^= x >> _27
    x *= _SECOND
    x ^= x >> _31
    return x


def _lattice(words: _Words, spread: int) -> Array:
    """Integers of [-spread, spread] without zero, so that an untouched element cannot equal a value."""
    # a vectorised division gives the remainder ten times as fast as NumPy's %
    kind = np.dtype(np.int32 if spread < 1 << 29 else np.int64)
    steps: np.ndarray[Any, np.dtype[np.signedinteger[Any]]] = (words >> np.uint64(33)).astype(kind)
    steps -= steps // (2 * spread) * (2 * spread)
    steps -= spread
    steps += steps >= 0
    return steps


def _real(words: _Words, spread: int) -> Array:
    """Floats of (-spread, spread) with all 53 bits in use."""
    return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5) * (2.0 * spread)


def _powers(words: _Words, spread: int) -> Array:
    """Plus or minus 1 or 2: products of a few are exact in every dtype."""
    del spread
    return np.array([1, -1, 2, -2])[(words >> np.uint64(40)).astype(np.int64) % 4]


def _nonfinite(words: _Words, spread: int) -> Array:
    """Lattice values; about one in six each is NaN, infinity and minus infinity."""
    fate = (words >> np.uint64(8)) % np.uint64(6)
    return np.select([fate == 0, fate == 1, fate == 2], [np.nan, np.inf, -np.inf], _lattice(words, spread))


def _rare(words: _Words) -> Array:
    """True for one in 29."""
    rare: Array = (words >> np.uint64(8)) % np.uint64(29) == 0
    return rare


def _sparse(words: _Words, spread: int) -> Array:
    """Zeros with some lattice values."""
    return np.where(_rare(words), _lattice(words, spread), 0)


def _even(words: _Words, spread: int) -> Array:
    """One lattice value, repeated, with a few others."""
    values = _lattice(words, spread)
    return np.where(_rare(words), values, values[:1])


def _patchy(words: _Words, spread: int) -> Array:
    """Only zeros, or sparse, even or lattice values, chosen by the first word: ranks differ."""
    look = int(words[0] >> np.uint64(50)) % 4 if len(words) else 0
    return (np.zeros(len(words)), _sparse(words, spread), _even(words, spread), _lattice(words, spread))[look]


def _special(words: _Words, dtype: np.dtype[Any]) -> Array:
    """Values of a dtype that a conversion to another dtype, or arithmetic, would change."""
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        positive = [0.0, np.inf, limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps]
        table = np.array([np.nan, *positive, *(-value for value in positive)], dtype)
    else:
        bounds = np.iinfo(dtype)
        odd = [2**bits + 1 for bits in (11, 24, 53) if 2**bits < bounds.max]
        table = np.array([0, 1, bounds.min, bounds.max, bounds.max - 1, *odd], dtype)
    made: Array = table[((words >> np.uint64(8)) % np.uint64(len(table))).astype(np.intp)]
    return made


_MAKERS: dict[str, Callable[[_Words, int], Array]] = {
    "lattice": _lattice,
    "real": _real,
    "powers": _powers,
    "nonfinite": _nonfinite,
    "tiny": _lattice,
    "sparse": _sparse,
    "even": _even,
    "patchy": _patchy,
}


_DEPEND_ON_FIRST = {"even", "patchy"}
"""The kinds whose values depend on the first word, too."""

_BLOCK = 1 << 14
"""Words that fit into the processor's cache: a large array is generated block by block."""


def numbers(shape: tuple[int, ...], dtype: str, kind: Kind, key: int, spread: int = 3) -> Array:
    """A fresh C-contiguous array of `shape` and `dtype`.

    `lattice`: integers of [-spread, spread] without 0, whose sums are exact in floating point in any order as long as
    they stay below 2**24 (float32) or 2**53 (float64). `real`: uniform floats of (-spread, spread); in an integer dtype
    they are truncated. `powers`: ±1 or ±2, whose products are exact. `nonfinite`: lattice values mixed with NaN and
    infinities, for floating dtypes. `special`: the extremes of the dtype, for data that is moved and not computed with.
    `tiny`: lattice values times the smallest positive number of a floating dtype. `sparse`: zeros with a few lattice
    values; `even`: one lattice value with a few others; `patchy`: zeros, sparse, even or lattice, depending on the key.
    """
    count, form = math.prod(shape), np.dtype(dtype)
    if count <= _BLOCK or kind in _DEPEND_ON_FIRST:
        return _made(hashed(count, key), form, kind, spread).astype(form).reshape(shape)
    array = np.empty(count, form)
    for first in range(0, count, _BLOCK):
        block = array[first : first + _BLOCK]
        block[:] = _made(hashed(len(block), key, first), form, kind, spread)
    return array.reshape(shape)


def _made(words: _Words, dtype: np.dtype[Any], kind: Kind, spread: int) -> Array:
    """The values of these words, before conversion to `dtype`."""
    if kind == "special":
        return _special(words, dtype)
    made = _MAKERS[kind](words, spread)
    return made * np.finfo(dtype).smallest_subnormal if kind == "tiny" else made


def overwritten(shape: tuple[int, ...], dtype: str, position: int) -> Array:
    """The values with which the caller overwrites the result of the operation at this position."""
    # no more values than the dtype holds exactly: int8 ends at 127, float16 is exact up to 2048
    kinds = 14 if np.dtype(dtype).itemsize == 1 else 900
    return np.full(shape, 113 + (position + 1) % kinds, dtype)


def poison_like(array: Array) -> Array:
    """Poison: values that no computation gives, so that a missing write shows."""
    made = np.empty(array.shape, array.dtype)
    poison(made)
    return made


def unreceived(array: Array) -> Array:
    """The initial values of a receive buffer: different from poison, which senders leave behind."""
    return np.full_like(array, 109)


def poison(array: Array) -> None:
    """Overwrite an array with poison."""
    array.fill(np.nan if array.dtype.kind in "fc" else 113)
