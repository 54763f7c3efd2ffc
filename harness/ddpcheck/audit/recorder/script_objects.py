"""The objects of a script that are recorded: its outermost modules, DDP wrappers and optimizers, in the order of their
first use.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..recorded_process import Run


@dataclass
class ScriptObjects:
    """modules: those that were called outside other modules."""

    modules: list[torch.nn.Module] = field(default_factory=list)
    wrappers: list[DistributedDataParallel] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)

    def place(self, optimizer: Optimizer) -> int:
        """The number of an optimizer."""
        return next(place for place, each in enumerate(self.optimizers) if each is optimizer)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Optimizers' parameters by `optimizer.number`; a parameter of two optimizers is under the first."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for place, optimizer in enumerate(self.optimizers):
            for number, parameter in enumerate(parameters_of(optimizer)):
                found.setdefault(id(parameter), (f"{place}.{number}", parameter))
        return dict(found.values())


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@functools.cache
def of(run: Run) -> ScriptObjects:
    """The objects of this run's script."""
    return ScriptObjects()
