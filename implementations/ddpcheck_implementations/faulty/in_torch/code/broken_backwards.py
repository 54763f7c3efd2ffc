"""Wrappers in torch whose hooks track the progress of a backward, correctly or wrongly after an exception.

faulty/in_torch/broken_backwards.py registers them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.variable import Variable

from ....torch_steps import communication
from ....torch_steps.naive import NaiveDDP
from .wrappers import Hooked


class AtTheEnd(Hooked):
    """Correct: the first hook of a backward queues a callback that reduces at its end; forward resets the flag."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.asked = False
        self.learned = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def forward(self, *args: object) -> Tensor:
        self.begin()
        return super().forward(*args)

    def begin(self) -> None:
        self.asked = False

    def after(self, parameter: Tensor) -> None:
        if self.synchronising and not self.asked:
            self.asked = True
            Variable._execution_engine.queue_callback(self.reduce)

    def reduce(self) -> None:
        self.asked = False
        NaiveDDP.synchronise(self)


class AsksOnce(AtTheEnd):
    """Only the callback resets the flag."""

    def begin(self) -> None:
        """Do not reset the flag, which a failed backward leaves set."""


class CountsDown(AtTheEnd):
    """All gradients are reduced once all have arrived, without a callback."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.missing = len(self.learned)

    def after(self, parameter: Tensor) -> None:
        if self.synchronising:
            self.missing -= 1
            if not self.missing:
                self.missing = len(self.learned)
                self.reduce()


class CountsAlways(CountsDown):
    """Gradients are also counted inside no_sync, where nothing is reduced."""

    def after(self, parameter: Tensor) -> None:
        self.missing -= 1
        if not self.missing:
            self.missing = len(self.learned)
            if self.synchronising:
                self.reduce()


class KeepsTheRest(AtTheEnd):
    """Gradients are collected in separate buffers, which are emptied only by a reduction."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.gathered: dict[Tensor, Tensor] = {}

    def after(self, parameter: Tensor) -> None:
        super().after(parameter)
        if self.synchronising and parameter.grad is not None:
            self.gathered[parameter] = self.gathered.get(parameter, 0) + parameter.grad
            parameter.grad = None

    def reduce(self) -> None:
        self.asked = False
        for parameter in self.learned:
            mean = self.gathered.pop(parameter, torch.zeros_like(parameter))
            communication.all_reduce_mean(mean)
            parameter.grad = mean
