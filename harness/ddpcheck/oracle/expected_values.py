"""The oracle's results: an ExpectedOperation for each operation, with an ExpectedArray for each named array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..job import Operation
from .bounded_values import Value
from .gradients import Presence
from .origins import Losses, Norm, Origin


@dataclass(frozen=True, slots=True)
class ExpectedArray:
    """The expected values of one named array on every rank: value.exact[r] on rank r.

    presence: whether rank r must hold an array, must hold None, or may hold None or zeros. ranks: those on which the
    value is promised. alike: all ranks must hold the same bits, even where a bound lets them differ from the exact
    value.
    """

    value: Value
    dtype: str
    presence: tuple[Presence, ...]
    ranks: tuple[int, ...]
    alike: bool = True
    made_of: Origin | None = None


@dataclass(frozen=True, slots=True)
class ExpectedOperation:
    """The expected results of one operation.

    numbers: by name (loss, norm), a value for every rank; made_of: the operations that such a number is computed from.
    arrays: by kind (gradients, parameters, buffers), then by name. outputs: of a prediction, an array for every rank,
    promised on the ranks `promised`.
    """

    position: int
    operation: Operation
    numbers: Mapping[str, Value] = field(default_factory=dict)
    made_of: Losses | Norm | None = None
    arrays: Mapping[str, Mapping[str, ExpectedArray]] = field(default_factory=dict)
    outputs: tuple[Value, ...] = ()
    promised: tuple[int, ...] = ()

    def within(self, limit: float) -> bool:
        """Whether no value exceeds this size. Diverging training shows it in the loss first."""
        return not any((np.abs(value.exact) > limit).any() for value in self.numbers.values())

    def tolerating(self, relative: float) -> ExpectedOperation:
        """A copy in which unknown bounds become `relative` times the largest value of their kind."""
        arrays = {what: _tolerating(relative, entries) for what, entries in self.arrays.items()}
        numbers = {name: _near(value, relative * _largest([value])) for name, value in self.numbers.items()}
        outputs = tuple(_near(value, relative * _largest(self.outputs)) for value in self.outputs)
        return replace(self, arrays=arrays, numbers=numbers, outputs=outputs)


def _tolerating(relative: float, entries: Mapping[str, ExpectedArray]) -> dict[str, ExpectedArray]:
    error = relative * _largest([entry.value for entry in entries.values()])
    return {name: replace(entry, value=_near(entry.value, error)) for name, entry in entries.items()}


def _largest(values: Iterable[Value]) -> float:
    return max((float(np.abs(value.exact).max(initial=0)) for value in values), default=0.0)


def _near(value: Value, error: float) -> Value:
    counts = value.exact.dtype.kind == "i"
    return value if counts else Value(value.exact, np.full_like(value.exact, error))
