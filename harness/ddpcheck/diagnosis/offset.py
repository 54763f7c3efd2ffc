"""Whether all elements are off by one and the same number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..values import Array

_TELLING = 4
"""Elements; fewer differ by the same number by chance."""


def offset(got: Array, expected: Array) -> Iterator[str]:
    """Sentences, if they are, and should not be all the same themselves, of which it could be a factor as well."""
    if got.size < _TELLING or got.dtype.kind not in "fi" or not np.ptp(expected):
        return
    off = got.astype(np.float64) - expected.astype(np.float64)
    if np.isfinite(off).all() and off.flat[0] and (off == off.flat[0]).all():
        much = f"{abs(off.flat[0]):g} too {'large' if off.flat[0] > 0 else 'small'}"
        yield f"every element is {much}: what an accumulator, or the memory of the result, held before is in the sum"
