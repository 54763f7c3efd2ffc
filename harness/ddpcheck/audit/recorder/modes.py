"""Records the modes of modules in forward passes that train: which of those that differ by their mode are in eval().

A mode is noted where it changes. Modules that do the same in both modes, such as linear layers, are left out.
"""

from __future__ import annotations

import functools
import weakref

import torch

from ..recorded_process import Run

_NAMED = 4
_MOST = 2000
"""Modules in a model, above which modes are looked at in the recorded steps only."""


class Modes:
    """The last mode of each outermost module."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._last: weakref.WeakKeyDictionary[torch.nn.Module, tuple[str, ...]] = weakref.WeakKeyDictionary()
        self._large: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

    def see(self, place: int, module: torch.nn.Module) -> None:
        """Note the modules inside that are in eval(), if they are others than in the last forward pass that trained."""
        run = self.run
        if run.mirrors or (module in self._large and not run.full):
            return
        every = list(module.named_modules())
        if len(every) > _MOST:
            self._large.add(module)
        evaluating = tuple(name for name, each in every if not each.training and _differs_by_mode(each))
        if self._last.get(module, ()) != evaluating:
            self._last[module] = evaluating
            names = [name.removeprefix("module.") for name in evaluating[:_NAMED]]
            run.note("mode", place=place, step=run.step, count=len(evaluating), evaluating=names, line=run.line())


def _differs_by_mode(module: torch.nn.Module) -> bool:
    """Whether the module's own forward pass depends on its mode. A transformer's layer only takes a faster way in eval()."""
    if isinstance(module, (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer)):
        return False
    if isinstance(module, torch.nn.RNNBase):
        return module.dropout > 0
    if 0 in (getattr(module, "p", None), getattr(module, "dropout", None)):
        return False
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and "training" in code.co_names


@functools.cache
def of(run: Run) -> Modes:
    """The modes of this run's modules."""
    return Modes(run)
