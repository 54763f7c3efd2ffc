"""Fifteen wrappers with one mistake each, plugged in by the five lines of the README."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddpcheck.pytorch.adapter import TORCH_PROMISES, torch_adapter

from .right import Buckets, FlatBuffer, HookPerParameter


class Summed(HookPerParameter):
    """No division by the world size."""

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)


class NothingAtConstruction(HookPerParameter):
    """Each rank keeps its own initial parameters and buffers."""

    def synchronise_state(self) -> None:
        pass


class LastBucketStays(HookPerParameter):
    """A bucket is reduced when it is full, so the last bucket usually is not reduced."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.bucket: list[Tensor] = []
        self.seen = 0

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.bucket.append(parameter.grad)
        self.seen += 1
        if sum(gradient.nbytes for gradient in self.bucket) >= 32:
            for gradient in self.bucket:
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()
            self.bucket = []
        if self.seen == len(self.parameters_in_use):
            self.bucket, self.seen = [], 0


class HandleDropped(HookPerParameter):
    """The handle of the all-reduce is dropped, so the result is not waited for."""

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        total = parameter.grad.clone()
        self.handle = dist.all_reduce(total, async_op=True)
        parameter.grad.copy_(total / dist.get_world_size())


class ReadBackReversed(FlatBuffer):
    """The buffer is filled from the first parameter on, but read from the last on."""

    def copy_back(self, flat: Tensor, gradients: list[Tensor]) -> None:
        super().copy_back(flat, gradients[::-1])


class DividedTwice(HookPerParameter):
    """Divided before the sum and after it."""

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad /= dist.get_world_size()
        super().ready(parameter)


class UnusedStay(HookPerParameter):
    """Gradients are reduced after the backward, but those of this rank's unused parameters are left out."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.queued = False

    def ready(self, parameter: Tensor) -> None:
        if not self.queued:
            self.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)

    def finish(self) -> None:
        self.queued = False
        everyone = torch.tensor([parameter.grad is not None for parameter in self.parameters_in_use], dtype=torch.int32)
        dist.all_reduce(everyone, dist.ReduceOp.MIN)
        for parameter, on_all in zip(self.parameters_in_use, everyone.tolist(), strict=True):
            if on_all:
                super().ready(parameter)


class RankZerosGradient(HookPerParameter):
    """All ranks get the gradient of rank 0."""

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        dist.broadcast(parameter.grad, 0)


class ParametersAveraged(HookPerParameter):
    """The values of the parameters are averaged, not their gradients."""

    def ready(self, parameter: Tensor) -> None:
        values = parameter.detach()
        dist.all_reduce(values)
        values /= dist.get_world_size()


class FrozenTrained(HookPerParameter):
    """Every parameter requires a gradient after wrapping."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module.requires_grad_(True))


class SummedInFloat16(HookPerParameter):
    """Gradients are sent and summed in float16, without an option for it."""

    def ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        half = parameter.grad.to(torch.float16)
        dist.all_reduce(half)
        parameter.grad.copy_(half / dist.get_world_size())


class FirstBackwardOnly(HookPerParameter):
    """A hook is removed after its first call."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.called: set[Tensor] = set()

    def ready(self, parameter: Tensor) -> None:
        if parameter not in self.called:
            self.called.add(parameter)
            super().ready(parameter)


class EverySecondBucket(Buckets):
    """Only every second bucket is reduced."""

    def reduce(self, number: int) -> None:
        if number % 2 == 0:
            super().reduce(number)


class BuffersStay(HookPerParameter):
    """Buffers are not broadcast."""

    def synchronise_state(self) -> None:
        for tensor in self.module.parameters():
            dist.broadcast(tensor.detach(), 0)


class BuffersOfLastRank(HookPerParameter):
    """Buffers are broadcast from the last rank, at construction and before each training forward."""

    def synchronise_state(self) -> None:
        for parameter in self.module.parameters():
            dist.broadcast(parameter.detach(), 0)
        self.broadcast_buffers()

    def broadcast_buffers(self) -> None:
        for buffer in self.module.buffers():
            dist.broadcast(buffer, dist.get_world_size() - 1)

    def forward(self, *inputs: Any) -> Any:
        if self.training and torch.is_grad_enabled():
            self.broadcast_buffers()
        return super().forward(*inputs)


def _adapter(kind: type[Any]) -> Any:
    return torch_adapter(kind.__name__, wrap=lambda module: kind(module))


summed = _adapter(Summed)
nothing_at_construction = _adapter(NothingAtConstruction)
last_bucket_stays = _adapter(LastBucketStays)
handle_dropped = _adapter(HandleDropped)
read_back_reversed = _adapter(ReadBackReversed)
divided_twice = _adapter(DividedTwice)
unused_stay = torch_adapter(
    "UnusedStay",
    wrap=lambda module: UnusedStay(module),
    capabilities=TORCH_PROMISES.but(unused_parameters="synchronised"),
)
rank_zeros_gradient = _adapter(RankZerosGradient)
parameters_averaged = _adapter(ParametersAveraged)
frozen_trained = _adapter(FrozenTrained)
summed_in_float16 = _adapter(SummedInFloat16)
first_backward_only = _adapter(FirstBackwardOnly)
every_second_bucket = _adapter(EverySecondBucket)
buffers_stay = _adapter(BuffersStay)
buffers_of_last_rank = _adapter(BuffersOfLastRank)
