"""Four typical wrappers that are right, each plugged in by the five lines of the README."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddpcheck.pytorch.adapter import torch_adapter


class HookPerParameter(nn.Module):
    """An all-reduce for each parameter, when its gradient is ready."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.synchronise_state()
        self.parameters_in_use = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameter in self.parameters_in_use:
            parameter.register_post_accumulate_grad_hook(self.ready)  # type: ignore[no-untyped-call]  # torch's

    def synchronise_state(self) -> None:
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            dist.broadcast(tensor.detach(), 0)

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()

    def forward(self, *inputs: Any) -> Any:
        return self.module(*inputs)


class AsynchronousHandles(HookPerParameter):
    """The same with asynchronous handles, which are waited for at the end of the backward."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.handles: list[tuple[Any, Tensor]] = []

    def ready(self, parameter: Tensor) -> None:
        if not self.handles:
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        assert parameter.grad is not None
        self.handles.append((dist.all_reduce(parameter.grad, async_op=True), parameter.grad))

    def finish(self) -> None:
        for handle, gradient in self.handles:
            handle.wait()
            gradient /= dist.get_world_size()
        self.handles.clear()


class Buckets(HookPerParameter):
    """Gradients in buckets of 256 bytes, the last layer's first, each reduced when it is complete."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.buckets: list[list[Tensor]] = [[]]
        for parameter in reversed(self.parameters_in_use):
            if sum(p.nbytes for p in self.buckets[-1]) >= 256:
                self.buckets.append([])
            self.buckets[-1].append(parameter)
        self.bucket_of = {p: number for number, bucket in enumerate(self.buckets) for p in bucket}
        self.missing = [len(bucket) for bucket in self.buckets]

    def ready(self, parameter: Tensor) -> None:
        number = self.bucket_of[parameter]
        self.missing[number] -= 1
        if not self.missing[number]:
            self.missing[number] = len(self.buckets[number])
            self.reduce(number)

    def reduce(self, number: int) -> None:
        gradients = [parameter.grad for parameter in self.buckets[number] if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        self.copy_back(flat / dist.get_world_size(), gradients)

    def copy_back(self, flat: Tensor, gradients: list[Tensor]) -> None:
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()


class FlatBuffer(Buckets):
    """All gradients in one buffer, reduced at the end of the backward."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.buckets = [[*self.parameters_in_use]]
        self.queued = False

    def ready(self, parameter: Tensor) -> None:
        if not self.queued:
            self.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)

    def finish(self) -> None:
        self.queued = False
        self.reduce(0)


hook_per_parameter = torch_adapter("hook_per_parameter", wrap=lambda module: HookPerParameter(module))
asynchronous_handles = torch_adapter("asynchronous_handles", wrap=lambda module: AsynchronousHandles(module))
buckets = torch_adapter("buckets", wrap=lambda module: Buckets(module))
flat_buffer = torch_adapter("flat_buffer", wrap=lambda module: FlatBuffer(module))
