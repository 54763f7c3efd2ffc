"""The seeds of checks, and the likely cause where one of them fails."""

from __future__ import annotations

SEEDS = (42, 43, 44, 421, 1042, 42 + (1 << 16), 42 + (1 << 31), 1 << 24, (1 << 24) + 1, (1 << 32) - 1, 1, 0)
"""Neighbours, and the next but one; such as are alike in 16 or 31 bits, in float32, or when an epoch or a rank counts for a
thousand, or follows as text; the largest that NumPy's older generators take; and 0, which may be taken for none.
"""
UNLIKE = SEEDS[0], 0, SEEDS[5], SEEDS[9]
"""Of these one, none, one above 16 bits, and the largest."""


def of_seed(seed: int) -> str:
    """Where a seed is not the first that is asked for, with which all went well."""
    return f" (seed {seed})" * (seed != SEEDS[0])
