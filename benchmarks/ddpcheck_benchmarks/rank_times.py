"""Statistics of begin and end stamps of all ranks: shape (ranks, iterations), seconds of one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ddpcheck import assertions
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

Floats = npt.NDArray[np.float64]


def stamps(trace: Trace, operation: int, name: str) -> Floats:
    """One stamp of one operation from every rank."""
    return np.stack([np.asarray(values, np.float64) for values in trace.values(operation, name)])


def slowest(begin: Floats, end: Floats) -> Floats:
    """Each iteration's time on the slowest rank, for which a synchronous program waits."""
    longest: Floats = (end - begin).max(axis=0)
    return longest


def queue_share(begin: Floats, end: Floats, queued: Sequence[float | None]) -> float | None:
    """The largest share of a rank's time in which it waited for a core; None if unknown for a rank."""
    known = [seconds for seconds in queued if seconds is not None]
    if len(known) < len(queued):
        return None
    return float(max(np.array(known) / (end[:, -1] - begin[:, 0])))


def spread(begin: Floats, end: Floats, parts: int = 1) -> dict[str, Any]:
    """Differences between iterations and ranks within a launch; all times are divided by `parts`.

    global_seconds is from the first rank's begin to the last rank's end. It is larger than the slowest rank's time if
    ranks do not begin together.
    """
    each = (end - begin) / parts
    longest = each.max(axis=0)
    p25, p50, p95 = (float(value) for value in np.percentile(longest, (25, 50, 95)))
    return {
        "p25": p25,
        "p95": p95,
        "worst": float(longest.max()),
        "cv": float(longest.std() / longest.mean()),
        "spikes": int((longest > 1.5 * p50).sum()),
        "iterations": int(longest.size),
        "global_seconds": float(np.median(end.max(axis=0) - begin.min(axis=0)) / parts),
        "ranks": [
            {"median": float(np.median(own)), "slowest": float((each.argmax(axis=0) == rank).mean())}
            for rank, own in enumerate(each)
        ],
    }


def why(trace: Trace) -> str:
    """One line about the first failed rank: operation and last message. Empty if none failed."""
    try:
        assertions.completed(trace)
    except Finding as finding:
        return finding.diagnosis.headline
    return ""
