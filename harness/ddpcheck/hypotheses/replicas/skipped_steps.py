"""Hypotheses about a step that should be skipped on all ranks, and is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...causes import Cause
from ...causes import replicas as causes
from ...job import Job
from ...trace import Trace


@dataclass(frozen=True)
class NotSkipped:
    """A Job whose second step, or a few, should be skipped, and its Trace."""

    job: Job
    trace: Trace

    @cached_property
    def looks(self) -> list[list[dict[str, Any]]]:
        return [ranks for _, ranks in self.trace.all_values("observe")]

    @cached_property
    def last(self) -> int:
        """The number of the look after the skipped steps."""
        return next(number for number in range(2, len(self.looks)) if "gradients" in self.looks[number + 1][0])

    @cached_property
    def moved(self) -> list[bool]:
        """Whether the parameters of each rank changed."""
        return [_differ(old["parameters"], new["parameters"]) for old, new in self._each()]

    @property
    def averages_moved(self) -> bool:
        return any(_differ(old.get("averaged", {}), new.get("averaged", {})) for old, new in self._each())

    def _each(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Of each rank, the values before and after."""
        return zip(self.looks[1], self.looks[self.last], strict=True)


def skip_moves_averages(of: NotSkipped) -> Cause | None:
    return causes.SKIP_MOVES_AVERAGES() if not any(of.moved) and of.averages_moved else None


def step_taken(of: NotSkipped) -> tuple[Cause, ...]:
    """By all ranks; perhaps, in models of several layers, one layer's overflow is hidden from the others."""
    if not all(of.moved):
        return ()
    finite = all(np.isfinite(array).all() for rank in of.looks[of.last] for array in rank["parameters"].values())
    hidden = of.job.model is not None and len(of.job.model.layers) > 2
    taken = causes.NONFINITE_DECIDED_IN_PARTS() if finite else causes.NONFINITE_STEP_TAKEN()
    return (taken, *(causes.NONFINITE_HIDDEN(),) * hidden)


def skip_decided_per_rank(of: NotSkipped) -> Cause | None:
    went = tuple(rank for rank, changed in enumerate(of.moved) if changed)
    return causes.SKIP_DECIDED_PER_RANK(ranks=went) if went else None


def loss_scales_apart(of: NotSkipped) -> Cause | None:
    gradients = [rank["gradients"] for rank in of.looks[of.last + 1]]
    return causes.LOSS_SCALES_APART() if any(_differ(gradients[0], other) for other in gradients) else None


def skip_leaves_state(of: NotSkipped) -> Cause:
    return causes.SKIP_LEAVES_STATE()


def infinity_of_one_sign(job: Job) -> Cause | None:
    """The model has one parameter, whose gradient is infinite."""
    return causes.INFINITY_OF_ONE_SIGN() if job.model is not None and len(job.model.tensors()) == 1 else None


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return any(not np.array_equal(old[name], new[name]) for name in old)
