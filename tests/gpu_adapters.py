"""Adapters for test_gpu.py whose modules are on a GPU that the ranks share; ranks import this file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ddpcheck.contract import ReplicaSync
from ddpcheck.contract.adapter import Adapter
from ddpcheck.job import OptimizerSpec
from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter


def _ddp(module: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module)


def _averaging(name: str, average: Callable[[Any], None]) -> Adapter:
    """Plain modules whose gradients `average` makes equal after backward."""
    return torch_adapter(
        name,
        lambda module: module,
        no_sync=lambda module: contextlib.nullcontext(),
        after_backward=average,
        capabilities=TORCH_PROMISES.but(replica_sync=ReplicaSync.NOTHING),
        device="cuda",
    )


def _on_a_stream_of_its_own(name: str, *, waits_before: bool = True, waits_after: bool = True) -> Adapter:
    """All-reduces after backward, on another stream than that of backward and the optimizer."""

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
                    torch.cuda._sleep(1_000_000)  # as on a slower network
                    parameter.grad /= dist.get_world_size()
        if waits_after:
            usual.wait_stream(side)

    return _averaging(name, average)


def _through_memory_of_the_host(name: str, *, waits: bool = True) -> Adapter:
    """All-reduces copies in page-locked memory, which are complete only after the stream that makes them."""

    def average(module: Any) -> None:
        import torch
        import torch.distributed as dist

        for gradient in [parameter.grad for parameter in module.parameters() if parameter.grad is not None]:
            copy = torch.empty(gradient.shape, dtype=gradient.dtype, pin_memory=True)
            copy.copy_(gradient, non_blocking=True)
            if waits:
                torch.cuda.current_stream().synchronize()
            dist.all_reduce(copy)
            gradient.copy_(copy / dist.get_world_size(), non_blocking=True)

    return _averaging(name, average)


def _stepping_on_another_stream(wrapped: Any, spec: OptimizerSpec) -> Any:
    """An optimizer that updates on another stream, for which no code waits."""
    import torch

    from ddpcheck.pytorch.replica import make_optimizer

    optimizer = make_optimizer([p for p in wrapped.parameters() if p.requires_grad], spec)
    side, step = torch.cuda.Stream(), optimizer.step

    def stepped() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(4_000_000)  # as for a larger model
            step()

    optimizer.step = stepped  # type: ignore[method-assign,assignment]
    return optimizer


def _ddp_with_a_hook_on_another_stream(module: Any) -> Any:
    """DDP with a communication hook whose future completes before its stream does."""
    import torch
    import torch.distributed as dist

    wrapped, side = _ddp(module), torch.cuda.Stream()

    def hook(_: object, bucket: Any) -> Any:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(4_000_000)
            dist.all_reduce(bucket.buffer())
            bucket.buffer().div_(dist.get_world_size())
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    wrapped.register_comm_hook(None, hook)
    return wrapped


shared = torch_adapter("ddp_shared_gpu", _ddp, device="cuda")
own_stream = _on_a_stream_of_its_own("own_stream")
starts_too_early = _on_a_stream_of_its_own("starts_too_early", waits_before=False)
ends_too_early = _on_a_stream_of_its_own("ends_too_early", waits_after=False)
through_the_host = _through_memory_of_the_host("through_the_host")
copy_not_awaited = _through_memory_of_the_host("copy_not_awaited", waits=False)
hook_not_awaited = torch_adapter("hook_not_awaited", _ddp_with_a_hook_on_another_stream, device="cuda")
step_not_awaited = torch_adapter("step_not_awaited", _ddp, optimizer=_stepping_on_another_stream, device="cuda")
