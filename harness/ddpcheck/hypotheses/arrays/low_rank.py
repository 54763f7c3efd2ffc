"""Whether a matrix is the right one, projected on fewer dimensions, as PowerSGD compresses gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, values
from .evidence import WrongArray

_ROUNDINGS = 8
"""Each element may be off by this many last bits of the largest element."""
_APART = 4
"""The difference must be this many times the effect of rounding."""


def low_rank(of: WrongArray) -> Iterator[Cause]:
    """A cause if got - base is expected - base, projected on some directions of its own columns or rows.

    Fewer dimensions alone prove little: a gradient without a sample, or without a rank, has fewer, too.
    """
    got, expected, base, bound = of.got, of.expected, of.evidence.idle, of.evidence.bound
    if of.evidence.before is not None and base is None:
        return
    if got.ndim != 2 or min(got.shape) < 2 or got.dtype.kind != "f" or not np.isfinite(got).all():
        return
    start = np.zeros(got.shape) if base is None else base.astype(np.float64)
    seen, right = got - start, expected - start
    if not np.isfinite(right).all():
        return
    noise = _ROUNDINGS * float(np.finfo(got.dtype).eps) * float(max(np.abs(got).max(), np.abs(start).max()))
    if bound is not None and np.isfinite(bound).all():
        noise += float(bound.max())
    noise *= got.size**0.5
    columns, sizes, rows = np.linalg.svd(seen, full_matrices=False)
    of_right = np.linalg.svd(right, compute_uv=False)
    rank, whole = int((sizes > noise).sum()), int((of_right > noise).sum())
    if not 0 < rank < whole:
        return
    allowed = noise * (1 + of_right[0] / sizes[rank - 1])
    left, across = columns[:, :rank], rows[:rank]
    projected = left @ (left.T @ right), (right @ across.T) @ across
    if np.abs(seen - right).max() > _APART * allowed and any(np.abs(seen - p).max() <= allowed for p in projected):
        yield values.LOW_RANK(rank=rank, expected_rank=whole)
