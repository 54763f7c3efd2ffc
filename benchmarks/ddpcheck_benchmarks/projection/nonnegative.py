"""Least squares with coefficients of zero or more, because no message takes negative time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def nonnegative_least_squares(matrix: Vector, target: Vector) -> Vector:
    """X >= 0, shape (columns,), with the least |matrix x - target|; matrix is (rows, columns), target (rows,).

    The active-set method of Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23. Columns may differ by
    many orders of magnitude, so they are scaled first. ValueError if a number is not finite.
    """
    if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise ValueError("least squares needs finite numbers; look for a NaN or an infinity in the measured times")
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    columns = scaled.shape[1]
    tolerance = 10 * np.finfo(np.float64).eps * max(scaled.shape) * max(1.0, float(np.linalg.norm(target)))
    solution = np.zeros(columns)
    free = np.zeros(columns, dtype=bool)
    # each round frees the column that helps most; columns that would become negative are fixed at zero again
    for _ in range(3 * columns):
        gain = scaled.T @ (target - scaled @ solution)
        gain[free] = 0.0
        if free.all() or gain.max() <= tolerance:
            break
        free[int(np.argmax(gain))] = True
        while free.any():
            trial = np.zeros(columns)
            trial[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            negative = free & (trial <= 0)
            if not negative.any():
                solution = trial
                break
            ways = solution[negative] / (solution[negative] - trial[negative])
            solution = solution + float(ways.min()) * (trial - solution)
            free &= solution > tolerance
            solution[~free] = 0.0
    result: Vector = solution / scale
    return result
