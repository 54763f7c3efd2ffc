"""Causes of a step that is not skipped, though all ranks should skip it."""

from __future__ import annotations

import numpy as np

from ...causes import Cause
from ...causes import replicas as causes
from ...trace import Trace


def why_not_skipped(trace: Trace, *, hidden: bool) -> tuple[Cause, ...]:
    """hidden: whether it was the step of hidden_overflow(), in_a_branch() or in_the_last_layer()."""
    looks = [ranks for _, ranks in trace.all_values("observe")]
    last = next(number for number in range(2, len(looks)) if "gradients" in looks[number + 1][0])
    (before, after), later = [[rank["parameters"] for rank in looks[number]] for number in (1, last)], looks[last + 1]
    moved = [
        any(not np.array_equal(old[name], new[name]) for name in old) for old, new in zip(before, after, strict=True)
    ]
    went = tuple(rank for rank, changed in enumerate(moved) if changed)
    pairs = zip(looks[1], looks[last], strict=True)
    if not any(moved) and any(
        not np.array_equal(old[name], new[name])
        for old, new in ((old.get("averaged", {}), new.get("averaged", {})) for old, new in pairs)
        for name in old
    ):
        return (causes.SKIP_MOVES_AVERAGES(),)
    if all(moved):
        finite = all(np.isfinite(array).all() for new in after for array in new.values())
        taken = (causes.NONFINITE_DECIDED_IN_PARTS if finite else causes.NONFINITE_STEP_TAKEN)()
        return (taken, *(causes.NONFINITE_HIDDEN(),) * hidden)
    if any(moved):
        return (causes.SKIP_DECIDED_PER_RANK(ranks=went),)
    gradients = [rank["gradients"] for rank in later]
    if any(not np.array_equal(gradients[0][name], other[name]) for other in gradients for name in gradients[0]):
        return (causes.LOSS_SCALES_APART(),)
    return (causes.SKIP_LEAVES_STATE(),)
