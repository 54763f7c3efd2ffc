"""The learning rates that a training run tells."""

from __future__ import annotations

from functools import partial

import numpy as np

from ddpcheck import expect
from ddpcheck.diagnosis import Evidence
from ddpcheck.numerics import gamma
from ddpcheck.values import Array

from .drawn_runs import Run
from .gone_wrong import wrong_factors


def rates_follow(run: Run) -> None:
    """Learning rates that a run tells are those of the schedule, with the same bits on all ranks."""
    every = np.array(run.schedule)
    told = [None if values is None else np.array(values) for values in run.rates]
    before = len(every) // run.plan.epochs * run.first
    for rank, got in enumerate(told):
        if got is not None:
            bound = np.full(len(every) - before, run.job.optimizer.lr * gamma(4 * len(every) + 4, "float32"))
            known = partial(_rates_gone_wrong, run, rank, every, before)
            expect.within(got, every[before:], bound, "learning rates of the steps", rank, known)
    expect.same_on_all_ranks(told, "learning rates of the steps")


def _rates_gone_wrong(run: Run, rank: int, every: Array, before: int) -> Evidence:
    """What a rank's learning rates would be; every: those of all steps; before: how many come before what is told."""
    lr, plan = run.job.optimizer.lr, run.plan
    each = len(every) // len(run.indices)
    steps = each * plan.epochs  # of which a run that ends early takes the first
    late = "each is that of the step after: the schedule has gone on before it is read, or before the step"
    known = [(late, np.append(every[1:], every[-1] - lr / steps))]
    known += [
        (sentence, np.array([lr * factor(step, steps) for step in range(len(every))]))
        for sentence, factor in wrong_factors(plan, run.job.world_size, len(run.parameters[0]))
    ]
    size = plan.batch_size * plan.micro_batches
    used = np.array([len(epoch[rank][start * size :][:size]) for epoch in run.indices for start in range(each)])
    share = (np.cumsum(used) - used) / max(1, used.sum())
    known.append(("it follows the samples that this rank has used itself: ranks differ", lr * (1 - share)))
    told = [(sentence, array[before:]) for sentence, array in known]
    told.append(("the schedule begins anew after resuming", every[: len(every) - before]))
    return Evidence(alternatives=tuple(told), precision=False)
