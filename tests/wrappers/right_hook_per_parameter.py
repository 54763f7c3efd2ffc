"""Right: an all-reduce from a hook on each parameter, as its gradient is ready."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddpcheck.pytorch.adapter import torch_adapter


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), 0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.average)  # type: ignore[no-untyped-call]  # torch's

    def average(self, parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)


adapter = torch_adapter("right_hook_per_parameter", wrap=lambda module: Wrapper(module))
