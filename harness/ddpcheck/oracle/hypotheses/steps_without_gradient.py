"""Hypotheses about a parameter without gradient that a step has moved all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...causes import Cause
from ...causes import gradients as causes
from ...diagnosis import Evidence
from ...job import OptimizerSpec
from ...seeded_values import Array
from ..bounded_values import Value
from ..expected import Origin
from ..optimizer import Optimizer


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A parameter without gradient in a step, which has to stay. before: it, and `optimizer` its state, in front of the
    step. earlier: what happened to it last.
    """

    name: str
    before: Array
    optimizer: Optimizer
    earlier: Origin | None

    def evidence(self, expected: Array, rank: int) -> Evidence:
        known: tuple[tuple[Cause, Array], ...] = tuple((cause, array[rank]) for cause, array in self._alternatives())
        known += self.earlier.evidence(expected, rank).alternatives if self.earlier else ()
        return Evidence(len(self.before), alternatives=known, precision=False, otherwise=(causes.SHOULD_NOT_MOVE(),))

    def _alternatives(self) -> Iterator[tuple[Cause, Array]]:
        spec = self.optimizer.spec
        if spec.weight_decay:
            yield causes.MOVED_WITHOUT_GRADIENT(by="momentum and weight decay"), self._moved(spec)
            yield causes.MOVED_WITHOUT_GRADIENT(by="weight decay"), self.before * (1 - spec.lr * spec.weight_decay)
        yield causes.MOVED_WITHOUT_GRADIENT(by="momentum"), self._moved(replace(spec, weight_decay=0.0))

    def _moved(self, spec: OptimizerSpec) -> Array:
        used = self.optimizer.copy()
        used.spec = spec
        return used.step(self.name, Value(self.before), Value(np.zeros_like(self.before))).exact
