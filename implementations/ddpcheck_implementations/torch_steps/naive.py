"""Step 3: one process per copy. After backward every gradient is averaged, in one all-reduce per parameter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import communication


class NaiveDDP(nn.Module):
    """All ranks start from rank 0's values; `synchronise` after each backward keeps them equal."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in (*module.parameters(), *module.buffers()):
            communication.broadcast(tensor.detach())

    def forward(self, *args: object) -> Tensor:
        outputs: Tensor = self.module(*args)
        return outputs

    def synchronise(self) -> None:
        for parameter in self.module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                # Other ranks may have used it: a rank that skips an all-reduce would mismatch all later ones.
                parameter.grad = torch.zeros_like(parameter)
            communication.all_reduce_mean(parameter.grad)
