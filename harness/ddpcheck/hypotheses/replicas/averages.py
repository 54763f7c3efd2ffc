"""Causes of wrong averages of parameters."""

from __future__ import annotations

import numpy as np

from ...causes import Cause
from ...causes import replicas as causes
from ...trace import Trace


def why_averages_differ(trace: Trace) -> Cause | None:
    for position, ranks in trace.all_values("observe"):
        first, *others = (rank["averaged"] for rank in ranks)
        if any(not np.array_equal(first[name], other[name]) for other in others for name in first):
            if position == 0:
                return causes.AVERAGES_START_APART()
            return causes.AVERAGES_OF_OWN()
        if position and all(np.array_equal(ranks[0]["averaged"][name], ranks[0]["parameters"][name]) for name in first):
            return causes.AVERAGES_ARE_PARAMETERS()
    return None
