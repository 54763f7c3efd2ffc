"""A completed training run, and the same run as a Job of single steps, which the oracle can replay.

A run reports the samples of each rank in order, so one process can repeat the same batches. A window of micro-batches
is one large batch there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

import numpy as np

from ..contract import Capabilities
from ..job import Backward, Clip, Job, Observe, Operation, PerRank, Step, Train, ZeroGrad
from ..seeded_values import Array
from ..trace import Trace
from .auxiliary_terms import terms_of
from .expected_values import ExpectedOperation
from .job_in_one_process import Oracle

Indices = Sequence[Sequence[Array]]
"""The samples used: for each epoch, those of each rank in their order."""


def plan_of(job: Job, position: int = 0) -> Train:
    plan = job.operations[position]
    assert isinstance(plan, Train)
    return plan


def indices_of(trace: Trace) -> Indices:
    return list(zip(*trace.values(0, "indices"), strict=True))


def batches(ranks: Sequence[Array], size: int) -> list[PerRank]:
    """An epoch's samples cut into batches of `size` on each rank; a rank without further samples has empty batches."""
    cut = [[tuple(rank[i : i + size].tolist()) for i in range(0, len(rank), size)] for rank in ranks]
    return list(zip_longest(*cut, fillvalue=()))


@dataclass(frozen=True)
class Run:
    """A completed or resumed training run. Lists of its reports have the ranks first.

    indices: of all epochs of the plan. first: the first epoch of this run, at which its reports begin; not 0 after a
    resume. before: the losses of the epochs before.
    """

    job: Job
    plan: Train
    promised: Capabilities
    indices: Indices
    parameters: list[Mapping[str, Array]]
    losses: list[list[float]]
    rates: list[list[float] | None]
    best: list[Mapping[str, Array]]
    first: int = 0
    before: Sequence[float] = ()

    @staticmethod
    def told(
        job: Job, trace: Trace, promised: Capabilities, position: int = 0, first: int = 0, before: Sequence[float] = ()
    ) -> Run:
        """The run of the operation at `position`. The operation at 0 must have used the same samples, in all epochs."""
        parameters, losses, rates, best = (
            trace.values(position, name) for name in ("parameters", "losses", "learning_rates", "best")
        )
        return Run(
            job, plan_of(job), promised, indices_of(trace), parameters, losses, rates, best, first=first, before=before
        )

    @property
    def has_terms(self) -> bool:
        """Whether the loss has auxiliary terms."""
        return self.job.model is not None and bool(terms_of(self.job.model))

    @property
    def uneven(self) -> bool:
        """Whether ranks used different numbers of samples in an epoch."""
        return any(len({len(rank) for rank in ranks}) > 1 for ranks in self.indices)

    @property
    def schedule(self) -> list[float]:
        """The learning rate of every step. A run that stops early does not reach the end of its schedule."""
        taken = sum(len(batches(ranks, self.plan.batch_size * self.plan.micro_batches)) for ranks in self.indices)
        steps = taken * self.plan.epochs // len(self.indices)
        linear = self.plan.schedule == "linear"
        return [self.job.optimizer.lr * ((steps - step) / steps if linear else 1.0) for step in range(taken)]

    @cached_property
    def moments(self) -> list[list[ExpectedOperation]]:
        """The same run in one process: for each epoch the expected operations of its steps; the last one gives the
        parameters.
        """
        operations: list[Operation] = []
        ends = []
        for ranks in self.indices:
            for samples in batches(ranks, self.plan.batch_size * self.plan.micro_batches):
                operations += [ZeroGrad(), Backward(samples)]
                operations += [Clip(self.plan.max_norm)] if self.plan.max_norm is not None else []
                operations.append(Step())
            operations.append(Observe(("parameters",)))
            ends.append(len(operations))
        rates = self.schedule if self.plan.schedule != "constant" else ()
        steps = replace(self.job, operations=tuple(operations))
        moments = list(Oracle(steps, self.promised, bounds=True, rates=rates).walk())
        return [moments[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def stacked(values: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays of all ranks by name, with the ranks as first axis."""
    return {name: np.stack([rank[name] for rank in values]).astype(np.float64) for name in values[0]}


def lasts(losses: Sequence[float], patience: int, lower: Callable[[float, float], bool] = operator.lt) -> float:
    """The number of epochs that a run with these losses lasts under `patience`; infinity if it does not stop early."""
    lowest, since = math.inf, 0
    for epoch, loss in enumerate(losses, start=1):
        lowest, since = (loss, 0) if lower(loss, lowest) else (lowest, since + 1)
        if since >= patience:
            return epoch
    return math.inf
