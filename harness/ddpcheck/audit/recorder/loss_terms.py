"""Records the numbers of which a loss consists: single values that need a gradient, and numbers that are applied to tensors.

Compared with one process, they show which term of a loss is wrong, and at which line.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..recorded_process import Run
from .tensor_numbers import TensorNumbers

_MOST = 256
"""The most values that are kept of one backward pass, and the most numbers."""
_APPLY = frozenset({"add", "sub", "mul", "div", "rsub", "add_", "sub_", "mul_", "div_"})


class LossTerms:
    """The single values and the applied numbers since the last backward pass.

    A value is [line, operation, value, places of the single values that the operation took, number that it applied or None]. A
    number is [line, operation, number].
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._values: list[list[Any]] = []
        self._numbers: list[list[Any]] = []
        self._places = TensorNumbers()

    def see(self, operation: Any, args: Any, result: Any) -> None:
        run = self.run
        if run.in_backward or run.loading or not run.full or not run.trains or not torch.is_grad_enabled():
            return
        if operation.overloadpacket.__name__ == "bernoulli_" and len(args) > 1 and isinstance(args[1], float):
            self._apply(run.line(), "bernoulli_", args[1])  # dropout's mask: its share of ones
            return
        single = isinstance(result, torch.Tensor) and result.numel() == 1 and result.is_floating_point()
        name = operation.overloadpacket.__name__
        if not single and name not in _APPLY:
            return
        if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in _flat(args)):
            return
        number = _number(args) if name in _APPLY else None
        if not single and number is None:
            return
        line = run.line()
        if number is not None:
            self._apply(line, name, number)
        if single and len(self._values) < _MOST:
            parts = [place for each in _flat(args) if (place := self._places.of(each)) is not None]
            self._places.add(result, len(self._values))
            self._values.append([line, name, float(result.detach()), parts, number])

    def _apply(self, line: str, name: str, number: float) -> None:
        if len(self._numbers) < _MOST:
            self._numbers.append([line, name, number])

    def close(self, loss: torch.Tensor) -> None:
        """Note what was seen before a backward of this loss."""
        run, place = self.run, self._places.of(loss)
        if run.full and place is not None:
            run.note(
                "terms", step=run.step, number=run.backwards, loss=place, values=self._values, numbers=self._numbers
            )
        self._values, self._numbers = [], []
        self._places.clear()


def _flat(args: Any) -> list[Any]:
    return [each for argument in args for each in (argument if isinstance(argument, (list, tuple)) else (argument,))]


def _number(args: Any) -> float | None:
    """The number that is applied to a tensor that needs a gradient: a plain one, or a tensor with one element."""
    for each in args[:2]:
        if isinstance(each, float):
            return each
        if isinstance(each, torch.Tensor) and not each.requires_grad and each.numel() == 1 and each.is_floating_point():
            return float(each)
    return None


@functools.cache
def of(run: Run) -> LossTerms:
    """The terms of this run's losses."""
    return LossTerms(run)
