"""Hypotheses about wrong averages of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...causes import Cause
from ...causes import replicas as causes


@dataclass(frozen=True)
class ObservedAverages:
    """One observation of averages and parameters. operation: its position in the Job. ranks: the values of each rank."""

    operation: int
    ranks: Sequence[dict[str, Any]]

    @property
    def apart(self) -> bool:
        """Whether ranks have different averages."""
        first, *others = (rank["averaged"] for rank in self.ranks)
        return any(not np.array_equal(first[name], other[name]) for other in others for name in first)


def averages_start_apart(of: ObservedAverages) -> Cause | None:
    """They are not rank 0's initial parameters."""
    return causes.AVERAGES_START_APART() if of.operation == 0 and of.apart else None


def averages_of_own(of: ObservedAverages) -> Cause | None:
    """Each rank averages over other parameters than the common ones."""
    return causes.AVERAGES_OF_OWN() if of.apart else None


def averages_are_parameters(of: ObservedAverages) -> Cause | None:
    """After the start, rank 0's averages still equal the parameters."""
    averaged, parameters = (of.ranks[0][what] for what in ("averaged", "parameters"))
    same = of.operation and all(np.array_equal(averaged[name], parameters[name]) for name in averaged)
    return causes.AVERAGES_ARE_PARAMETERS() if same else None
