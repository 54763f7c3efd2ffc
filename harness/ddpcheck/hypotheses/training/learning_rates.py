"""Hypotheses about the learning rates that a training run reports."""

from __future__ import annotations

import numpy as np

from ...causes import Cause, training
from ...oracle.training_runs import Run
from ...seeded_values import Array
from ..arrays import Evidence
from .schedules import by_share_of_samples, wrong_factors


def rates_by_epoch(rates: int, epochs: int) -> Cause | None:
    """rates: the number of reported learning rates, which is not that of the steps."""
    return training.schedules.RATES_BY_EPOCH() if rates == epochs else None


def rate_rounded(run: Run) -> tuple[Cause, ...]:
    """Reported learning rates are those of the schedule, rounded to a narrower dtype than the model's."""
    model, every = run.job.model, np.array(run.schedule)
    reported = np.array(run.rates[0] or ())
    right = every[len(every) - len(reported) :]
    if model is None or model.dtype != "float64" or not len(reported) or np.array_equal(reported, right):
        return ()
    rounded = np.array_equal(reported, right.astype(np.float32).astype(np.float64))
    return (training.schedules.RATE_ROUNDED(dtype="float32", given=model.dtype),) if rounded else ()


def of_learning_rates(run: Run, rank: int, every: Array, before: int) -> Evidence:
    """A rank's learning rates for each cause. every: of all steps; before: the number of steps before the reported
    ones.
    """
    lr, plan = run.job.optimizer.lr, run.plan
    each = len(every) // len(run.indices)
    steps = each * plan.epochs  # a run that ends early takes the first of these
    known: list[tuple[Cause, Array]] = [
        (training.schedules.RATE_READ_LATE(), np.append(every[1:], every[-1] - lr / steps))
    ]
    known += [
        (cause, np.array([lr * factor(step, steps) for step in range(len(every))]))
        for cause, factor in wrong_factors(plan, run.job.world_size, len(run.parameters[0]))
    ]
    size = plan.batch_size * plan.micro_batches
    used = np.array([len(epoch[rank][start * size :][:size]) for epoch in run.indices for start in range(each)])
    share = (np.cumsum(used) - used) / max(1, used.sum())
    known.append((by_share_of_samples(uneven=run.uneven), lr * (1 - share)))
    reported = [(cause, array[before:]) for cause, array in known]
    reported.append((training.resumes.SCHEDULE_RESTARTS(ranks=f"rank {rank}"), every[: len(every) - before]))
    return Evidence(alternatives=tuple(reported), precision=False)
