"""Hypotheses about a parameter without gradient that a step has changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...causes import Cause
from ...causes import gradients as causes
from ...job import OptimizerSpec
from ...oracle.bounded_values import Value
from ...oracle.origins import PassedOver
from ...seeded_values import Array
from ..arrays import Alternatives, Evidence


def of_parameter_without_gradient(origin: PassedOver, earlier: Alternatives, rank: int) -> Evidence:
    """earlier: hypotheses about the operation before the step."""
    known = tuple((cause, array[rank]) for cause, array in _alternatives(origin))
    return Evidence(
        len(origin.before), alternatives=known + earlier, precision=False, otherwise=(causes.SHOULD_NOT_MOVE(),)
    )


def _alternatives(origin: PassedOver) -> Iterator[tuple[Cause, Array]]:
    spec = origin.optimizer.spec
    if spec.weight_decay:
        yield causes.MOVED_WITHOUT_GRADIENT(by="momentum and weight decay"), _moved(origin, spec)
        yield causes.MOVED_WITHOUT_GRADIENT(by="weight decay"), origin.before * (1 - spec.lr * spec.weight_decay)
    yield causes.MOVED_WITHOUT_GRADIENT(by="momentum"), _moved(origin, replace(spec, weight_decay=0.0))


def _moved(origin: PassedOver, spec: OptimizerSpec) -> Array:
    used = origin.optimizer.copy()
    used.spec = spec
    return used.step(origin.name, Value(origin.before), Value(np.zeros_like(origin.before))).exact
