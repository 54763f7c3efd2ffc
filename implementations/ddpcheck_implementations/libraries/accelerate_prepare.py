"""Hugging Face Accelerate: the module that prepare() returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn


def _wrap(module: nn.Module) -> nn.Module:
    from accelerate import Accelerator  # pyright: ignore[reportMissingImports]  # an extra

    made: nn.Module = Accelerator(cpu=True).prepare(module)
    return made


adapter = torch_adapter(
    "accelerate_prepare",
    _wrap,
    capabilities=TORCH_PROMISES,
    requires=("torch", "accelerate"),
    description="Accelerate: prepare(module)",
)
