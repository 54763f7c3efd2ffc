"""Records means of a number that the script reads once in each batch of a pass, as a loss or an accuracy.

Only for passes whose batches differ in size: there, the mean over batches is not the mean over samples.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from ..recorded_process import Run
from .patching import OWN, is_library, replace


class BatchValues:
    """The sizes of one pass's batches, and the numbers that were read after each batch, by the script's line."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._values: dict[str, list[float]] = {}

    def read(self, line: str, value: float) -> None:
        self._values.setdefault(line, []).append(value)

    def means(self) -> list[dict[str, float]]:
        """plain: the mean over batches; weighted: by samples. Only of lines that read one number in each batch."""
        if len(set(self.sizes)) < 2:
            return []
        count, samples = len(self.sizes), sum(self.sizes)
        return [
            {
                "plain": sum(values) / count,
                "weighted": sum(value * size for value, size in zip(values, self.sizes, strict=True)) / samples,
            }
            for values in self._values.values()
            if len(values) == count
        ]


_open: dict[int, BatchValues] = {}


def begin_batch(run: Run, values: BatchValues, size: int) -> None:
    """Numbers that are read from now on belong to this batch."""
    values.sizes.append(size)
    _open[id(run)] = values


def end_pass(run: Run) -> None:
    _open.pop(id(run), None)


def note_loss(run: Run, line: str, loss: float | None, scale: float) -> None:
    """A loss that is not read belongs to the batch, too, without its last factor."""
    values = _open.get(id(run))
    if values is not None and loss is not None and scale:
        values.read(f"{line} backward", loss / scale)


def install(run: Run) -> None:
    if run.mirrors:
        return

    def make(original: Any) -> Any:
        def read(self: Any) -> Any:
            number = original(self)
            values, frame = _open.get(id(run)), sys._getframe(1)
            file = frame.f_code.co_filename
            if (
                values is not None
                and isinstance(number, (int, float))
                and not (file.startswith(OWN) or is_library(file))
            ):
                values.read(f"{file}:{frame.f_lineno}", number)
            return number

        return read

    for name in ("item", "__float__"):
        replace(torch.Tensor, name, make)
