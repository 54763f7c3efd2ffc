"""Batch norm of a mirror run normalises each rank's samples separately, as the ranks do; SyncBatchNorm the whole
batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from ..recorded_process import Run
from ..recorder.patching import replace


def install(run: Run) -> None:
    inside = [0]

    def make_forward(original: Any) -> Any:
        def forward(self: Any, batch: Any) -> Any:
            inside[0] += 1
            try:
                return original(self, batch)
            finally:
                inside[0] -= 1

        return forward

    def make_batch_norm(original: Any) -> Any:
        def batch_norm(batch: Any, mean: Any, variance: Any, *args: Any, **kwargs: Any) -> Any:
            training = args[2] if len(args) > 2 else kwargs.get("training", False)
            sizes = _shards(run, batch.shape[0])
            if not inside[0] or not training or sizes is None:
                if inside[0] and training and len(run.samples) > 1:
                    why = f"{batch.shape[0]} rows in a batch of {sum(run.samples)} samples"
                    run.note("misfit", what="batch norm", why=why, step=run.step, line=run.line())
                return original(batch, mean, variance, *args, **kwargs)
            parts = []
            shift = int(run.settings.rolled) * (batch.shape[0] // sum(run.samples))
            depth = inside[0]
            inside[0] = (
                0  # a mode that intercepts functions of torch, such as that of --no-gpu, comes back here with a part
            )
            try:
                for number, part in enumerate(torch.split(torch.roll(batch, -shift, 0), sizes)):
                    own = number == 0  # DDP keeps rank 0's statistics
                    running = (mean, variance) if own else (_copy(mean), _copy(variance))
                    parts.append(original(part, *running, *args, **kwargs))
            finally:
                inside[0] = depth
            return torch.roll(torch.cat(parts), shift, 0)

        return batch_norm

    replace(_BatchNorm, "forward", make_forward)
    replace(functional, "batch_norm", make_batch_norm)


def _copy(tensor: Any) -> Any:
    return None if tensor is None else tensor.clone()


def _shards(run: Run, rows: int) -> list[int] | None:
    """The number of rows of each rank; None if unknown."""
    total = sum(run.samples)
    if len(run.samples) < 2 or not total or rows % total:
        return None
    return [size * (rows // total) for size in run.samples]
