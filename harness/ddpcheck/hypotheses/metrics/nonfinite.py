"""Hypotheses about means of metrics of which some are NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...causes import Cause
from ...causes import metrics as causes
from ...job import Aggregate
from ...oracle.means import mean_of


@dataclass(frozen=True)
class LostNonfinite:
    """A number in place of the mean of values that are not all finite. wanted: infinite or NaN."""

    made: Aggregate
    wanted: float


@dataclass(frozen=True)
class WrongBesideNan:
    """A wrong metric where one rank has a NaN for another one.

    close: the metrics of one rank, with those within rounding replaced by the expected ones. name: the wrong one's.
    """

    made: Aggregate
    close: Mapping[str, float]
    name: str

    @property
    def nan_of(self) -> tuple[int, str]:
        """The rank that has a NaN, and the name of the metric."""
        assert self.made.no_number is not None
        return self.made.no_number


def opposite_infinities(of: LostNonfinite) -> Cause | None:
    several = len({value for value in of.made.values if not math.isfinite(value)}) > 1
    return causes.OPPOSITE_INFINITIES() if several else None


def nonfinite_left_out(of: LostNonfinite) -> Cause:
    """Names the value without a number: a NaN as a cause's parameter would not equal itself."""
    name = "NaN" if math.isnan(of.wanted) else "infinity" if of.wanted > 0 else "-infinity"
    return causes.NONFINITE_LEFT_OUT(value=name)


def nan_spreads(of: WrongBesideNan) -> Cause | None:
    return causes.NAN_SPREADS(metric=of.nan_of[1]) if math.isnan(of.close.get(of.name, 0.0)) else None


def rank_left_out_for_nan(of: WrongBesideNan) -> Cause | None:
    made, (rank, _) = of.made, of.nan_of
    others = replace(made, counts=tuple(count * (other != rank) for other, count in enumerate(made.counts)))
    times = made.names.index(of.name) + 1
    left_out = len(made.values) > 1 and of.close.get(of.name) == times * mean_of([others])
    return causes.RANK_LEFT_OUT_FOR_NAN(rank=rank) if left_out else None


def multiplied_beside_nan(of: WrongBesideNan) -> Cause | None:
    made, world = of.made, len(of.made.values)
    right = (made.names.index(of.name) + 1) * mean_of([made])
    multiplied = world > 1 and math.isclose(of.close.get(of.name, 0.0), right * world, rel_tol=1e-6)
    return causes.MEAN_TIMES_WORLD_SIZE(world_size=world) if multiplied else None


def mixed_up_beside_nan(of: WrongBesideNan) -> Cause:
    return causes.METRICS_MIXED_UP()
