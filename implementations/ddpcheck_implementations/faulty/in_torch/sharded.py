"""Mistakes with torch's fully_shard, which splits parameters over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

from ..registry import Registering

PROMISES = TORCH_PROMISES.but(
    model_features=TORCH_PROMISES.replica.model_features - {"scale"}, no_sync=False, predicts_alone=False
)


def _register(name: str, caught_by: str, cause: str, wrap: Callable[[Any], Any], **ways: Any) -> Any:
    wrap.__dict__["between_processes"] = True
    made = torch_adapter(name, wrap, capabilities=PROMISES, **ways)
    registering: Registering[Any] = Registering(lambda wrap: made.connect, made.capabilities)
    return registering(name, caught_by, cause=cause, launcher=made.launcher, requires=made.requires)(wrap)


def _broadcast_and_split(module: Any) -> Any:
    import torch.distributed as dist

    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor.detach(), 0)
    return _split(module)


def _split(module: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return fully_shard(module, mesh=mesh, reshard_after_forward=True)


def _not_broadcast(module: Any) -> Any:
    """Each rank splits its own initial parameters into shards, before rank 0's are broadcast."""
    return _split(module)


def _by_the_norm_of_the_shard(module: Any) -> Any:
    """Each rank clips by the norm of its own shard."""
    return _broadcast_and_split(module)


def _clip_own_part(wrapped: Any, max_norm: float) -> Any:
    from torch.nn.utils import get_total_norm

    held = [parameter.grad.to_local() for parameter in wrapped.parameters() if parameter.grad is not None]
    norm = get_total_norm(held)
    for part in held:
        part.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


NOT_BROADCAST = _register(
    "split-before-broadcast",
    "check_construction_broadcasts_parameters_from_rank_0",
    "split-before-broadcast",
    _not_broadcast,
)
NORM_OF_THE_SHARD = _register(
    "clipped-by-the-norm-of-the-shard",
    "check_clipping_uses_the_global_gradient_norm",
    "norm-of-shard",
    _by_the_norm_of_the_shard,
    clip=_clip_own_part,
)
