"""Arrays of ranks, and the expected results of reductions."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array, key_of, numbers

REDUCED = {
    "sum": lambda arrays: sum(arrays[1:], arrays[0]),
    "mean": lambda arrays: sum(arrays[1:], arrays[0]) / len(arrays),
    "min": lambda arrays: np.minimum.reduce(arrays),
    "max": lambda arrays: np.maximum.reduce(arrays),
    "prod": lambda arrays: np.multiply.reduce(arrays),
}


def of_rank(rank: int, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    return numbers(shape, dtype, "powers", key_of(seed, rank))


def same_bits(arrays: list[Array]) -> bool:
    return len({(array.dtype, array.shape, array.tobytes()) for array in arrays}) == 1
