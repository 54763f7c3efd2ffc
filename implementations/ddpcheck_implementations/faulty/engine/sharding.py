"""The seam of sharded modules: torch's fully_shard splits parameters over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpcheck.contract.adapter import Adapter
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

from ..registry import Registering, SeenIn, invented
from .circumstances import Circumstance

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


@dataclass(frozen=True)
class ShardingEffect:
    """splits: splits a module over the ranks. clip: clips the gradients of such a module; None for torch's."""

    splits: Callable[[Any], Any] = broadcast_and_split
    clip: Callable[[Any, float], Any] | None = None

    def register(
        self,
        name: str,
        *caught_by: str,
        cause: str = "",
        seen_in: SeenIn = invented,
        world_size: int = 2,
        **promises: Any,
    ) -> Callable[[Any], Adapter]:
        def make(wrap: Any) -> Adapter:
            wrap.__dict__["between_processes"] = True
            made = torch_adapter(name, wrap, capabilities=PROMISES.but(**promises), clip=self.clip)
            registering: Registering[Any] = Registering(lambda wrap: made.connect, made.capabilities)
            return registering(
                name,
                *caught_by,
                cause=cause,
                seen_in=seen_in,
                world_size=world_size,
                launcher=made.launcher,
                requires=made.requires,
            )(wrap)

        return make

    def implemented(self, where: Circumstance) -> Any:
        def wrap(module: Any) -> Any:
            return self.splits(module)

        return wrap


def _clipped_by_own_norm(wrapped: Any, max_norm: float) -> Any:
    from torch.nn.utils import get_total_norm

    held = [parameter.grad.to_local() for parameter in wrapped.parameters() if parameter.grad is not None]
    norm = get_total_norm(held)
    for part in held:
        part.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


split_before_broadcast = ShardingEffect(split)
clipped_by_norm_of_shard = ShardingEffect(clip=_clipped_by_own_norm)
