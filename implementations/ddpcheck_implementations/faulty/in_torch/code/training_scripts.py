"""Typical wrappers, hooks and optimizers of torch users, each with one mistake.

faulty/in_torch/training_scripts.py registers them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from ....torch_steps import communication
from ....torch_steps.naive import NaiveDDP
from .wrappers import Hooked

_CAP = 100.0
_SMALL = 1e-3
_LIMIT = 1e4


class SkipsNone(NaiveDDP):
    """Correct: reduces the learned parameters that some rank used, determined after every backward."""

    def synchronise(self) -> None:
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                self.reduce(parameter)

    def reduce(self, parameter: nn.Parameter) -> None:
        used = torch.tensor([self.is_used(parameter)], dtype=torch.int64)
        communication.all_reduce(used)
        if used.item():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            communication.all_reduce_mean(parameter.grad)

    def is_used(self, parameter: nn.Parameter) -> bool:
        return parameter.grad is not None


class UsedByValue(SkipsNone):
    """A parameter counts as used if its gradient is not zero."""

    def is_used(self, parameter: nn.Parameter) -> bool:
        return parameter.grad is not None and bool(parameter.grad.any())

    def reduce(self, parameter: nn.Parameter) -> None:
        super().reduce(parameter)
        if parameter.grad is not None and not parameter.grad.any():
            parameter.grad = None


class TrainsACopy(SkipsNone):
    """The wrapper trains a copy of the module, but the optimizer has the parameters of the original."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(copy.deepcopy(module))


class EvalStays(SkipsNone):
    """train() and eval() change the wrapper's mode only, not the module's."""

    def train(self, mode: bool = True) -> EvalStays:
        self.training = mode
        return self


class KeepsOutputs(SkipsNone):
    """All outputs are kept for a final report, and with them the graph of every step."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.kept: list[Tensor] = []

    def forward(self, *args: object) -> Tensor:
        outputs = super().forward(*args)
        self.kept.append(outputs)
        return outputs


class HooksEachForward(Hooked):
    """Every forward pass attaches hooks again; only the first hook of each parameter reduces."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.reduced: set[Tensor] = set()

    def hook(self, parameter: nn.Parameter) -> None:
        """Do nothing at construction: forward attaches the hooks."""

    def after(self, parameter: Tensor) -> None:
        if parameter not in self.reduced:
            self.reduced.add(parameter)
            super().after(parameter)

    def forward(self, *args: object) -> Tensor:
        self.reduced = set()
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                super().hook(parameter)
        return super().forward(*args)


class SeedsEachForward(SkipsNone):
    """Every forward pass seeds the process by rank, so dropout masks are equal in every step."""

    def forward(self, *args: object) -> Tensor:
        torch.manual_seed(dist.get_rank())
        return super().forward(*args)


class SetsDefaultDtype(SkipsNone):
    """float64 inputs make float64 the process's default dtype, which also affects later tensors of the program."""

    def forward(self, *args: Any) -> Tensor:
        if args[0].dtype == torch.float64:
            torch.set_default_dtype(torch.float64)
        return super().forward(*args)


class HookedAtTheStart(Hooked):
    """Hooks are attached to parameters that are trainable at construction; layers unfrozen later stay local."""


class ClipsUnasked(SkipsNone):
    """Gradients are clipped at a large norm although no clipping was requested."""

    def synchronise(self) -> None:
        super().synchronise()
        nn.utils.clip_grad_norm_(self.module.parameters(), _LIMIT)


class ZeroesItsShard(torch.optim.SGD):
    """zero_grad() clears only the gradients of this rank's shard of the parameters."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for parameter in parameters[dist.get_rank() :: dist.get_world_size()]:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()


class SkipsItsShard(torch.optim.SGD):
    """Every rank checks, steps and broadcasts its own shard, so it misses a NaN in another shard."""

    def step(self, closure: Any = None) -> Any:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        size = dist.get_world_size()
        own = parameters[dist.get_rank() :: size]
        healthy = all(bool(p.grad.isfinite().all()) for p in own if p.grad is not None)
        whole = [group["params"] for group in self.param_groups]
        for group in self.param_groups:
            group["params"] = [p for p in group["params"] if healthy and any(p is each for each in own)]
        loss = super().step(closure)
        for group, params in zip(self.param_groups, whole, strict=True):
            group["params"] = params
        for number, parameter in enumerate(parameters):
            communication.broadcast(parameter.data, number % size)
        return loss


def clamped(_: object, bucket: Any) -> Future[Any]:
    """A communication hook that clamps large elements before it sends them."""
    return _mean(bucket.buffer().clamp(-_CAP, _CAP))


def small_ones_dropped(_: object, bucket: Any) -> Future[Any]:
    """A communication hook in which a rank whose norm is far below the largest sends zeros."""
    buffer = bucket.buffer()
    largest = buffer.norm()
    communication.all_reduce(largest, "max")
    return _mean(buffer * (buffer.norm() >= largest * _SMALL))


def _mean(buffer: Tensor) -> Future[Any]:
    communication.all_reduce_mean(buffer)
    future: Future[Any] = Future()
    future.set_result(buffer)
    return future


class EvalSwitchesOff(SkipsNone):
    """eval() turns off the reduction, and train() does not turn it on again."""

    on = True

    def train(self, mode: bool = True) -> EvalSwitchesOff:
        self.on = self.on and mode
        return super().train(mode)

    def synchronise(self) -> None:
        if self.on:
            super().synchronise()


class InMemoryOrder(SkipsNone):
    """The gradient is sent in memory order, and written back row by row."""

    def reduce(self, parameter: nn.Parameter) -> None:
        super().reduce(parameter)
        if parameter.grad is not None:
            flat = parameter.grad.as_strided((parameter.grad.numel(),), (1,)).clone()
            parameter.grad.copy_(flat.view(parameter.shape))
