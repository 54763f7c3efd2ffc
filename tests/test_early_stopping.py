"""The end of a run with patience."""

from __future__ import annotations

import math

import pytest

from ddpcheck_properties.training.early_stopping import lasts


@pytest.mark.parametrize(
    ("losses", "patience", "epochs"),
    [
        ((3.0, 2.0, 1.0), 1, math.inf),
        ((3.0, 3.0, 1.0), 1, 2),  # an equal loss is not lower
        ((3.0, 4.0, 2.0, 2.5, 2.0, 1.0), 2, 5),
        ((3.0, 4.0, 3.5, 2.0), 2, 3),  # lower than the previous loss, but not than the lowest
        ((math.nan, math.nan), 2, 2),
    ],
)
def test_run_stops_when_patience_is_exhausted(losses: tuple[float, ...], patience: int, epochs: float) -> None:
    assert lasts(losses, patience) == epochs
