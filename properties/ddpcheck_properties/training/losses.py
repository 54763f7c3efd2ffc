"""The loss that a training run reports for each epoch, and the causes of a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ddpcheck import assertions
from ddpcheck.hypotheses.training.epoch_losses import of_epoch_loss
from ddpcheck.job import Backward
from ddpcheck.numerics import gamma
from ddpcheck.oracle import ExpectedOperation
from ddpcheck.oracle.training_runs import Run
from ddpcheck.seeded_values import Array

from .final_state import parameters_wrong_too, unexplained


def reports_the_loss(run: Run) -> None:
    """The reported loss of each epoch is the mean over the samples of all ranks, on every rank."""
    for epoch, moments in enumerate(run.moments[run.first :], start=run.first):
        mean, bound = _loss(run, moments)
        for rank, losses in enumerate(run.losses):
            got = losses[epoch - run.first]
            known = partial(of_epoch_loss, run, epoch, rank, got)
            with unexplained(lambda: parameters_wrong_too(run)):
                assertions.within(np.float64(got), mean, bound, f"loss of epoch {epoch}", rank, known)


def _loss(run: Run, moments: Sequence[ExpectedOperation]) -> tuple[Array, Array]:
    """The mean loss over an epoch's samples, and its bound."""
    job = run.job
    assert job.model is not None
    total = allowed = count = 0.0
    steps = [moment for moment in moments if isinstance(moment.operation, Backward)]
    for moment in steps:
        assert isinstance(moment.operation, Backward)
        counts = np.array([len(rank) for rank in moment.operation.samples])
        loss = moment.numbers["loss"]
        total += float(loss.exact @ counts)
        allowed += float((np.zeros(job.world_size) if loss.error is None else loss.error) @ counts)
        count += float(counts.sum())
    mean = np.asarray(total / count)
    roundings = 2 * len(steps) * run.plan.micro_batches * job.world_size + 8
    dtype = "float32" if job.model.dtype == "float64" else job.model.dtype  # of metrics no more is asked
    return mean, np.asarray(allowed / count + abs(mean) * gamma(roundings, dtype))
