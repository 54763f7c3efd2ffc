"""The seeds that checks use, and the likely cause when only some of them fail."""

from __future__ import annotations

SEEDS = (42, 43, 44, 421, 1042, 42 + (1 << 16), 42 + (1 << 31), 1 << 24, (1 << 24) + 1, (1 << 32) - 1, 1, 0)
"""Neighbours, and the next but one; seeds that are equal in 16 or 31 bits, in float32, or if an epoch or a rank counts
as a thousand, or is appended as text; the largest that NumPy's older generators take; and 0, which may be taken for no
seed.
"""
UNLIKE = SEEDS[0], 0, SEEDS[5], SEEDS[9]
"""Of these: one seed, 0, one above 16 bits, and the largest."""


def of_seed(seed: int) -> str:
    """The cause if the first seed passes and another fails."""
    return f" (seed {seed})" * (seed != SEEDS[0])
