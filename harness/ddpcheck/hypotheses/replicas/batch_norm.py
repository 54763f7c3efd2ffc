"""Causes of wrong statistics of synchronised batch norm."""

from __future__ import annotations

import numpy as np

from ...causes import Cause
from ...causes import batch_norm as causes
from ...seeded_values import Array


def why_other_mean(got: list[Array], own: Array, right: Array) -> Cause | None:
    """Causes of a wrong mean. own: (ranks, features), the running mean if each rank measured by itself."""
    if np.allclose(got, right, rtol=1e-5):
        return None
    for rank, array in enumerate(got):
        if np.allclose(array, own[rank], rtol=1e-5) or np.allclose(array, own[0], rtol=1e-5):
            return causes.OWN_BATCH(rank=rank)
    if all(np.allclose(array, own.mean(axis=0), rtol=1e-5) for array in got):
        return causes.MEANS_WITHOUT_COUNTS()
    return None
