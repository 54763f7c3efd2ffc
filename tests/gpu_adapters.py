"""Adapters whose modules lie on a GPU that the ranks share, for test_gpu.py; ranks import this file."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from ddpcheck.adapter import Adapter
from ddpcheck.torch_adapter import TORCH_PROMISES, torch_adapter


def _ddp(module: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module)


def _on_a_stream_of_its_own(name: str, *, waits_before: bool = True, waits_after: bool = True) -> Adapter:
    """All-reduces after backward, on another stream than that of backward and of the optimizer."""

    def average(module: Any) -> None:
        import torch
        import torch.distributed as dist

        usual, side = torch.cuda.current_stream(), torch.cuda.Stream()
        if waits_before:
            side.wait_stream(usual)
        with torch.cuda.stream(side):
            for parameter in module.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
                    torch.cuda._sleep(1_000_000)  # as a slower network would
                    parameter.grad /= dist.get_world_size()
        if waits_after:
            usual.wait_stream(side)

    return torch_adapter(
        name,
        lambda module: module,
        no_sync=lambda module: contextlib.nullcontext(),
        after_backward=average,
        capabilities=dataclasses.replace(TORCH_PROMISES, broadcasts_parameters=False, broadcasts_buffers=False),
        device="cuda",
    )


shared = torch_adapter("ddp_shared_gpu", _ddp, device="cuda")
own_stream = _on_a_stream_of_its_own("own_stream")
starts_too_early = _on_a_stream_of_its_own("starts_too_early", waits_before=False)
ends_too_early = _on_a_stream_of_its_own("ends_too_early", waits_after=False)
