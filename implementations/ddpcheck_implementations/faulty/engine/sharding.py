"""The seam of sharded modules: torch's fully_shard splits parameters over the ranks."""

from __future__ import annotations

from typing import Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES

from .modules import ModuleEffect

PROMISES = TORCH_PROMISES.but(
    model_features=TORCH_PROMISES.replica.model_features - {"scale"}, no_sync=False, predicts_alone=False
)


def split(module: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return fully_shard(module, mesh=mesh, reshard_after_forward=True)


def broadcast_and_split(module: Any) -> Any:
    """Correct: all ranks split rank 0's values."""
    import torch.distributed as dist

    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor.detach(), 0)
    return split(module)


def _clipped_by_own_norm(wrapped: Any, max_norm: float) -> Any:
    from torch.nn.utils import get_total_norm

    held = [parameter.grad.to_local() for parameter in wrapped.parameters() if parameter.grad is not None]
    norm = get_total_norm(held)
    for part in held:
        part.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


split_before_broadcast = ModuleEffect(split, promised=PROMISES)
clipped_by_norm_of_shard = ModuleEffect(broadcast_and_split, clip=_clipped_by_own_norm, promised=PROMISES)
