"""Records what each operation of a step gives, as sums over its rows, and which results it takes.

Compared with one process, they show the first operation of which a rank's part is not a part of the whole batch's result.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...pytorch.pending_collectives import tensors_in
from ..recorded_process import Run
from .tensor_numbers import TensorNumbers

_STEPS = 2
"""The first optimizer steps, which are recorded: sums over all results are dear, and most losses are alike in all steps."""
_MOST = 4000
"""The most results that are kept of one backward pass."""
_ELEMENTS = 1 << 18
_ROWS = 512
_DIMENSIONS = 2
_UNWRITTEN = ("empty", "new_empty")
"""Operations whose results have arbitrary values, as dropout makes one for its mask."""


class OperationValues:
    """The results since the last backward pass: line, operation, places of the results that it took, shape; and the sums of each,
    along its first dimensions.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._results: list[tuple[str, str, tuple[int, ...], tuple[int, ...]]] = []
        self._sums: list[list[torch.Tensor | None]] = []
        self._places = TensorNumbers()

    def see(self, operation: Any, args: Any, result: Any) -> None:
        run = self.run
        if run.step >= _STEPS or run.in_backward or run.loading or not run.full or not run.started:
            return
        given = list(tensors_in(result))
        if not given or len(self._results) >= _MOST:
            return
        line, name = run.line(), operation.overloadpacket.__name__
        taken = tuple(place for each in tensors_in(args) if (place := self._places.of(each)) is not None)
        for each in given:
            self._places.add(each, len(self._results))
            self._results.append((line, name, taken, tuple(each.shape)))
            self._sums.append([] if operation.is_view or name.startswith(_UNWRITTEN) else _sums(each))

    def close(self, loss: torch.Tensor) -> None:
        """Keep what was seen before a backward of this loss."""
        run, place = self.run, self._places.of(loss)
        every = [each for sums in self._sums for each in sums if each is not None]
        if place is not None and every:
            sizes = [[None if each is None else len(each) for each in sums] for sums in self._sums]
            run.journal.keep(
                f"operations-{run.step}-{run.backwards}", (place, self._results, sizes, torch.cat(every).double())
            )
        self._results, self._sums = [], []
        self._places.clear()


def _sums(value: torch.Tensor) -> list[torch.Tensor | None]:
    """The sums along each of the first dimensions; None along a long one. None at all of integers, and of large tensors."""
    if type(value) is not torch.Tensor or not value.is_floating_point() or not 0 < value.numel() <= _ELEMENTS:
        return []
    if value.layout != torch.strided or value.device.type != "cpu":
        return []
    plain = value.detach()
    if not plain.dim():
        return [plain.float().reshape(1)]
    others = [[other for other in range(plain.dim()) if other != place] for place in range(plain.dim())]
    return [
        (plain.float().sum(rest) if rest else plain.float().clone()) if plain.shape[place] <= _ROWS else None
        for place, rest in enumerate(others[:_DIMENSIONS])
    ]


@functools.cache
def of(run: Run) -> OperationValues:
    """The results of this run's operations."""
    return OperationValues(run)
