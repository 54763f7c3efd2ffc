"""The learning rates that a training run reports."""

from __future__ import annotations

from functools import partial

import numpy as np

from ddpcheck import assertions
from ddpcheck.hypotheses.training.learning_rates import of_learning_rates, rates_by_epoch
from ddpcheck.numerics import gamma
from ddpcheck.oracle.training_runs import Run


def rates_follow(run: Run) -> None:
    """Reported learning rates are those of the schedule, with the same bits on all ranks."""
    every = np.array(run.schedule)
    reported = [None if values is None else np.array(values) for values in run.rates]
    before = len(every) // run.plan.epochs * run.first
    steps, epochs = len(every) - before, len(run.indices) - run.first
    for rank, got in enumerate(reported):
        if got is not None:
            assertions.that(
                len(got) == steps,
                f"rank {rank} reports {len(got)} learning rates, but should report {steps}, one for each step",
                rates_by_epoch(len(got), epochs),
            )
            bound = np.full(steps, run.job.optimizer.lr * gamma(4 * len(every) + 4, "float32"))
            known = partial(of_learning_rates, run, rank, every, before)
            assertions.within(got, every[before:], bound, "learning rates of the steps", rank, known)
    assertions.same_on_all_ranks(reported, "learning rates of the steps")
