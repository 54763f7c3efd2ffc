"""torch's DistributedDataParallel with ZeroRedundancyOptimizer: each rank updates a shard of the parameters and broadcasts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ddpcheck.job import OptimizerSpec


def _wrap(module: nn.Module) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module)


def _optimizer(wrapped: nn.Module, spec: OptimizerSpec) -> torch.optim.Optimizer:
    import torch
    from torch.distributed import get_rank, get_world_size
    from torch.distributed.optim import ZeroRedundancyOptimizer

    class Whole(ZeroRedundancyOptimizer):
        def state_dict(self) -> dict[str, Any]:
            """The whole state on every rank: consolidate_state_dict() gathers it to one."""
            whole: dict[str, Any] = {}
            for rank in range(get_world_size()):
                self.consolidate_state_dict(to=rank)
                if rank == get_rank():
                    whole = super().state_dict()
            return whole

    settings: dict[str, Any] = {"lr": spec.lr, "weight_decay": spec.weight_decay}
    if spec.name == "sgd":
        return Whole(wrapped.parameters(), torch.optim.SGD, momentum=spec.momentum, **settings)
    return Whole(wrapped.parameters(), torch.optim.Adam, betas=spec.betas, eps=spec.eps, **settings)


adapter = torch_adapter(
    "torch_zero_optimizer",
    _wrap,
    optimizer=_optimizer,
    capabilities=TORCH_PROMISES,
    description="torch DDP with ZeroRedundancyOptimizer",
)
