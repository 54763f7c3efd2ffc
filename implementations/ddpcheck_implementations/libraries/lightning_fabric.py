"""Lightning Fabric: the module that setup() returns."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn


@cache
def _fabric() -> Any:
    """Fabric in a rank that has started already, as under torchrun."""
    from lightning.fabric import Fabric  # pyright: ignore[reportMissingImports]  # an extra
    from lightning.fabric.plugins.environments import (  # pyright: ignore[reportMissingImports]
        TorchElasticEnvironment,
    )
    from lightning.fabric.strategies import DDPStrategy  # pyright: ignore[reportMissingImports]
    from torch.distributed import get_world_size

    strategy = DDPStrategy(cluster_environment=TorchElasticEnvironment())
    fabric = Fabric(accelerator="cpu", devices=get_world_size(), strategy=strategy)
    fabric.launch()
    return fabric


def _wrap(module: nn.Module) -> nn.Module:
    made: nn.Module = _fabric().setup(module)
    return made


def _no_sync(wrapped: nn.Module) -> AbstractContextManager[None]:
    context: AbstractContextManager[None] = _fabric().no_backward_sync(wrapped)
    return context


adapter = torch_adapter(
    "lightning_fabric",
    _wrap,
    no_sync=_no_sync,
    capabilities=TORCH_PROMISES,
    requires=("torch", "lightning"),
    description="Lightning Fabric: setup(module)",
)
