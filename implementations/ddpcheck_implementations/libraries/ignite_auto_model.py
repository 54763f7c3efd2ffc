"""pytorch-ignite's auto_model(), which chooses a wrapper for the backend that idist has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.contract.rank_context import RankContext
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn


def _start(context: RankContext) -> None:
    del context  # ignite reads RANK, WORLD_SIZE and so on, as torch does
    from ignite import distributed as idist  # pyright: ignore[reportMissingImports]  # an extra

    idist.initialize("gloo")


def _wrap(module: nn.Module) -> nn.Module:
    from ignite import distributed as idist  # pyright: ignore[reportMissingImports]  # an extra

    made: nn.Module = idist.auto_model(module)
    return made


adapter = torch_adapter(
    "ignite_auto_model",
    _wrap,
    capabilities=TORCH_PROMISES,
    start=_start,
    requires=("torch", "ignite"),
    description="pytorch-ignite: idist.auto_model()",
)
