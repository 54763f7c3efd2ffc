"""Records values that a script computes once and uses in each step, such as class weights: each rank may have its own.

Only operations that apply a small tensor to others are looked at. Parameters and buffers have laws of their own.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..recorded_process import Run
from .tensor_numbers import TensorNumbers
from .tensors import digest

OPERATIONS = frozenset(
    {
        "index",
        "index_select",
        "gather",
        "add",
        "sub",
        "mul",
        "div",
        "nll_loss_forward",
        "binary_cross_entropy_with_logits",
    }
)
_MOST = 4096


class Constants:
    """The tensors of this run that were used in an earlier step, by id. None is kept alive."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._first = TensorNumbers()
        self._noted: set[int] = set()

    def see(self, args: Any) -> None:
        """Note each operand of an operation that was an operand in an earlier step, too."""
        run = self.run
        if run.mirrors or not run.full or not run.trains or not torch.is_grad_enabled():
            return
        for each in args:
            if (
                not isinstance(each, torch.Tensor)
                or each.requires_grad
                or not each.is_floating_point()
                or each.numel() > _MOST
            ):
                continue
            step = self._first.of(each)
            if step is None:
                self._first.add(each, run.step)
                self._noted.discard(id(each))
            elif step < run.step and id(each) not in self._noted:
                self._noted.add(id(each))
                run.note("constant", step=run.step, digest=digest(each), shape=list(each.shape), line=run.line())


@functools.cache
def of(run: Run) -> Constants:
    """The constants of this run."""
    return Constants(run)
