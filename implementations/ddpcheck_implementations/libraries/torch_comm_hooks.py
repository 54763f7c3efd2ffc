"""torch's DistributedDataParallel with torch's communication hooks, which send gradients in fewer bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

if TYPE_CHECKING:
    from torch import nn

_WARM_UP = 2
"""Steps until PowerSGD compresses: the smallest value that torch allows. In a short run, the default of 1000 has no effect."""


def _hooked(module: nn.Module, state: object, hook: Any) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(module)
    wrapped.register_comm_hook(state, hook)
    return wrapped


def _fp16(module: nn.Module) -> nn.Module:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return _hooked(module, None, fp16_compress_hook)


def _power_sgd(module: nn.Module, start: int) -> nn.Module:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    state = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=start, min_compression_rate=1)
    return _hooked(module, state, powerSGD_hook)


# There is no adapter for bf16_compress_hook: without NCCL or XCCL, torch raises a TypeError.
fp16 = torch_adapter(
    "torch_ddp_fp16",
    _fp16,
    capabilities=TORCH_PROMISES.but(reduction_dtype="float16"),
    description="torch DDP, fp16_compress_hook",
)
power_sgd_warm_up = torch_adapter(
    "torch_ddp_power_sgd_warm_up",
    lambda module: _power_sgd(module, 1000),
    description="torch DDP, powerSGD_hook in its 1000 steps of warm-up",
)
power_sgd = torch_adapter(
    "torch_ddp_power_sgd",
    lambda module: _power_sgd(module, _WARM_UP),
    description="torch DDP, powerSGD_hook of rank 1 from the second step on",
)
