"""torch's replicate(): DistributedDataParallel as hooks on the module itself, without a wrapper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn


def _wrap(module: nn.Module) -> nn.Module:
    from torch.distributed._composable.replicate import replicate

    made: nn.Module = replicate(module)
    return made


adapter = torch_adapter("torch_replicate", _wrap, capabilities=TORCH_PROMISES, description="torch replicate()")
