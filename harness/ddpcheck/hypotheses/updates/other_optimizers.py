"""Hypotheses about one step by an optimizer with other settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...causes import Cause
from ...causes import updates as causes
from ...oracle.bounded_values import Value
from ...oracle.optimizer import Optimizer
from ...seeded_values import Array


def by_other_optimizers(
    name: str, gradient: Value, parameter: Value, optimizer: Optimizer
) -> Iterator[tuple[Cause, Array]]:
    """The result of this step for other optimizers than the requested one."""
    yield causes.NOT_UPDATED(), parameter.exact
    others: dict[Cause, dict[str, Any]] = {
        causes.DECAY_MISSING(): {"weight_decay": 0.0},
        causes.DECAY_TIMES(times=2): {"weight_decay": 2 * optimizer.spec.weight_decay},
        causes.MOMENTUM_MISSING(): {"momentum": 0.0},
    }
    for cause, changed in others.items():
        other = Optimizer(replace(optimizer.spec, **changed), optimizer.dtype, {**optimizer.state}, {**optimizer.steps})
        yield cause, other.step(name, parameter, gradient).exact
