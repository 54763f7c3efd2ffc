"""Applies the hypotheses of one table of ordered_hypotheses to evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ..causes import Cause
from ..causes.cause import Given, as_causes

Evidence = TypeVar("Evidence")


def first_cause(hypotheses: Iterable[Callable[[Evidence], Given]], of: Evidence) -> tuple[Cause, ...]:
    """The causes of the first hypothesis that fits; empty if none fits."""
    return next(filter(None, (as_causes(hypothesis(of)) for hypothesis in hypotheses)), ())


def all_causes(hypotheses: Iterable[Callable[[Evidence], Given]], of: Evidence) -> tuple[Cause, ...]:
    """The causes of all hypotheses that fit, in the order of the table."""
    return as_causes(tuple(hypothesis(of) for hypothesis in hypotheses))
