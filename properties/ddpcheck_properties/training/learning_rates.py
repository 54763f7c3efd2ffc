"""The learning rates that a training run reports."""

from __future__ import annotations

from functools import partial

import numpy as np

from ddpcheck import expect
from ddpcheck.causes import Cause, training
from ddpcheck.diagnosis import Evidence
from ddpcheck.numerics import gamma
from ddpcheck.seeded_values import Array

from .drawn_runs import Run
from .hypotheses.schedules import wrong_factors


def rates_follow(run: Run) -> None:
    """Reported learning rates are those of the schedule, with the same bits on all ranks."""
    every = np.array(run.schedule)
    reported = [None if values is None else np.array(values) for values in run.rates]
    before = len(every) // run.plan.epochs * run.first
    steps, epochs = len(every) - before, len(run.indices) - run.first
    for rank, got in enumerate(reported):
        if got is not None:
            expect.that(
                len(got) == steps,
                f"rank {rank} reports {len(got)} learning rates, but should report {steps}, one for each step",
                training.RATES_BY_EPOCH() if len(got) == epochs else (),
            )
            bound = np.full(steps, run.job.optimizer.lr * gamma(4 * len(every) + 4, "float32"))
            known = partial(_evidence, run, rank, every, before)
            expect.within(got, every[before:], bound, "learning rates of the steps", rank, known)
    expect.same_on_all_ranks(reported, "learning rates of the steps")


def _evidence(run: Run, rank: int, every: Array, before: int) -> Evidence:
    """A rank's learning rates by each cause. every: the rates of all steps; before: the number of steps before the reported
    ones.
    """
    lr, plan = run.job.optimizer.lr, run.plan
    each = len(every) // len(run.indices)
    steps = each * plan.epochs  # a run that ends early has the first of these
    known: list[tuple[Cause, Array]] = [(training.RATE_READ_LATE(), np.append(every[1:], every[-1] - lr / steps))]
    known += [
        (cause, np.array([lr * factor(step, steps) for step in range(len(every))]))
        for cause, factor in wrong_factors(plan, run.job.world_size, len(run.parameters[0]))
    ]
    size = plan.batch_size * plan.micro_batches
    used = np.array([len(epoch[rank][start * size :][:size]) for epoch in run.indices for start in range(each)])
    share = (np.cumsum(used) - used) / max(1, used.sum())
    known.append((training.RATE_BY_OWN_SAMPLES(), lr * (1 - share)))
    reported = [(cause, array[before:]) for cause, array in known]
    reported.append((training.SCHEDULE_RESTARTS(ranks=f"rank {rank}"), every[: len(every) - before]))
    return Evidence(alternatives=tuple(reported), precision=False)
