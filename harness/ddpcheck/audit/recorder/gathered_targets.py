"""Records cross entropies whose targets are consecutive positions, as where a row's match is in the column of its own number."""

from __future__ import annotations

from typing import Any

import torch

from ..recorded_process import Run


def note(run: Run, args: Any) -> None:
    """Record a call of nll_loss_forward, if target k is k plus a constant."""
    scores, target = args[0], args[1]
    if run.mirrors or not run.full or not torch.is_grad_enabled() or scores.dim() != 2 or target.numel() < 2:
        return
    first = int(target[0])
    if int(target[-1]) - first != target.numel() - 1 or not bool((target.diff() == 1).all()):
        return
    rows, columns = scores.shape
    run.note("positions", step=run.step, rows=rows, columns=columns, first=first, line=run.line())
