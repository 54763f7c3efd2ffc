"""torch's fully_shard() (FSDP2): parameters, gradients and optimizer states are sharded over the ranks."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn


def _wrap(module: nn.Module) -> nn.Module:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for tensor in chain(module.parameters(), module.buffers()):
        dist.broadcast(tensor.detach(), 0)  # each rank would shard its own values
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))  # a GPU's, if there is one, is the default
    fully_shard(module, mesh=mesh, reshard_after_forward=True)  # changes the module itself
    return module


adapter = torch_adapter(
    "torch_fully_shard",
    _wrap,
    capabilities=TORCH_PROMISES.but(
        model_features=TORCH_PROMISES.replica.model_features - {"scale"},  # it takes no scalars
        no_sync=False,  # it has another name: set_requires_gradient_sync(False)
        predicts_alone=False,
    ),
    description="torch fully_shard() (FSDP2)",
)
