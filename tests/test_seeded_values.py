"""Values by seed: every rank and the oracle generate the same values for arrays of any size."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from ddpcheck import seeded_values
from ddpcheck.seeded_values import Kind, numbers


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("size", [99, 100, 101, 350])
def test_arrays_made_in_blocks_have_the_values_of_those_made_at_once(
    kind: Kind, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = numbers((size,), "float32", kind, 7)
    monkeypatch.setattr(seeded_values, "_BLOCK", 100)
    assert numbers((size,), "float32", kind, 7).tobytes() == at_once.tobytes()


@pytest.mark.parametrize("spread", [1, 3, (1 << 29) - 1, 1 << 29, 1 << 31, 1 << 40])
def test_lattice_values_lie_within_their_spread_without_zero(spread: int) -> None:
    words = seeded_values.hashed(1000, 7)
    expected = [int(word) % (2 * spread) - spread for word in words >> np.uint64(33)]
    made = numbers((1000,), "int64", "lattice", 7, spread)
    assert made.tolist() == [value + (value >= 0) for value in expected]
