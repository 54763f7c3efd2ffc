"""Wrappers in torch that note in their hooks how far a backward is, and what becomes of that where an exception ends it.

faulty/in_torch/broken_backwards.py registers them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.variable import Variable

from .torch_mistakes import Hooked
from .torch_steps import communication
from .torch_steps.naive import NaiveDDP


class AtTheEnd(Hooked):
    """Correct: the first hook of a backward asks for a callback at its end, which reduces; forward asks for a new one."""

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
    """Only the callback says that it is to be asked for again."""

    def begin(self) -> None:
        """After a broken backward, its expected gradients are still counted as coming."""


class CountsDown(AtTheEnd):
    """All gradients travel once so many have arrived; the callback is not needed."""

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
    """Counts inside no_sync, too, where nothing is sent."""

    def after(self, parameter: Tensor) -> None:
        self.missing -= 1
        if not self.missing:
            self.missing = len(self.learned)
            if self.synchronising:
                self.reduce()


class KeepsTheRest(AtTheEnd):
    """Gathers in buffers of its own, which are emptied when they were sent."""

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
