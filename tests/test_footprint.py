"""What a process holds is counted."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck.footprint import held


@pytest.mark.skipif("bytes" not in held(), reason="this C library does not tell what malloc gave")
def test_arrays_are_counted_as_long_as_somebody_holds_them() -> None:
    before = held()["bytes"]
    small, large = np.ones(8002), np.ones(10**6)
    during = held()["bytes"]
    size = small.nbytes + large.nbytes
    del small, large
    assert during - before >= size
    assert during - held()["bytes"] >= size
