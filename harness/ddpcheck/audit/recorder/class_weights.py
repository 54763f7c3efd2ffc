"""Records cross-entropy means that are weighted by class: the number of targets, and the sum of their weights.

The operation is seen, not the function: all losses of torch that take class weights call it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..recorded_process import Run
from .loss_factors import MEAN

LOSSES = frozenset({"nll_loss_forward", "nll_loss2d_forward"})


def note(run: Run, args: Any, result: Any) -> None:
    """Record a call of one of LOSSES, if it is a mean over weighted targets."""
    _, target, weight, reduction, ignored = args
    if weight is None or reduction != MEAN or run.mirrors or not run.full or not torch.is_grad_enabled():
        return
    run.note(
        "class_weights", step=run.step, backwards=run.backwards, targets=int((target != ignored).sum()),
        weights=float(result[1]), line=run.line(),
    )  # fmt: skip
