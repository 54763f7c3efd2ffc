"""Records which of the script's lines write to parameters that no optimizer holds, such as those of a teacher or of an average.

Operations are seen in the recorded steps only. Which parameter a line has written is known later, as the module that holds it may
not have been called yet. So each line is noted when it writes for the first time, and named by number once a state is recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from ...pytorch.pending_collectives import place_of, tensors_in, written_arguments
from ..recorded_process import Run

_LINES = 256
"""The most lines, with their callers, that are noted."""


class UntrainedWrites:
    """The numbers of the lines that wrote to a storage, by its place. A new tensor at the same place has other lines."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._numbers: dict[tuple[str, ...], int] = {}
        self._written: dict[int, set[int]] = {}
        self._named: dict[str, set[int]] = {}

    def see(self, operation: Any, args: Any, result: Any) -> None:
        run = self.run
        if run.mirrors or run.in_backward or run.loading or not run.full or not run.trains:
            return
        if written := written_arguments(operation):
            number = self._number()
            for each in tensors_in([args[place] for place in written.values() if place < len(args)]):
                self._written.setdefault(place_of(each), set()).add(number)
        elif not _is_view(operation):
            self._made(args, result)

    def _made(self, args: Any, result: Any) -> None:
        """A result without a gradient may become a parameter's data."""
        trained = torch.is_grad_enabled() and any(each.requires_grad for each in tensors_in(args))
        numbers = set() if trained else {self._number()}
        for each in tensors_in(result):
            self._written[place_of(each)] = set(numbers)

    def _number(self) -> int:
        """The number of the line that is running. Those of its callers belong to it."""
        run = self.run
        line, callers = run.line(), run.callers()
        chain = (line, *callers)
        if chain not in self._numbers and len(self._numbers) < _LINES:
            self._numbers[chain] = len(self._numbers)
            run.note("write", number=self._numbers[chain], step=run.step, line=line, callers=callers)
        return self._numbers.get(chain, _LINES)

    def name(self, untrained: Mapping[str, torch.Tensor]) -> None:
        """Note the lines that wrote to these parameters, except those noted before."""
        found = {}
        for name, each in untrained.items():
            known = self._named.setdefault(name, set())
            if new := self._written.get(place_of(each), set()) - known - {_LINES}:
                known |= new
                found[name] = sorted(new)
        if found:
            self.run.note("written", step=self.run.step, names=found)


@functools.cache
def _is_view(operation: Any) -> bool:
    return any(each.alias_info is not None for each in operation._schema.returns)


@functools.cache
def of(run: Run) -> UntrainedWrites:
    """The writes of this run."""
    return UntrainedWrites(run)
