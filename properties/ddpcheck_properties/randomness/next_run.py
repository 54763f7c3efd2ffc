"""Reproducibility across runs: results depend on the seed, not on the time or place of the start."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import randomness as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Draw, Job, Operation, Sample, Start
from ddpcheck.trace import Trace

from ..drawing import for_each
from ..samplers.sampler_jobs import SEED, shuffled

if TYPE_CHECKING:
    from ddpcheck.session import Session

COUNT = 64
SAID = {"epochs": "orders", "local": "random numbers of its own", "common": "common random numbers"}


@law("sampler", needs.sampler, needs.sampler.shuffles, needs.ranks(most=1))
def check_sampler_order_is_reproducible_across_runs(session: Session) -> None:
    """Restarted ranks have the same sample orders as before, by seed and epoch, so that a run can be repeated or continued."""
    _as_before(session, Sample(shuffled(session.world_size), (0, 3), seed=SEED))


@law("randomness", needs.randomness, needs.ranks(most=1))
def check_random_numbers_are_reproducible_across_runs(session: Session) -> None:
    """Restarted ranks draw the same random numbers as before, by seed and epoch."""
    _as_before(session, Draw(SEED, (0, 3), COUNT))


def _as_before(session: Session, operation: Operation) -> None:
    job = Job(session.world_size, (operation,))
    before = session.run(job)
    assertions.completed(before)

    def judge(_: Job, trace: Trace) -> None:
        assertions.completed(trace)
        for rank, (first, second) in enumerate(zip(before.ranks, trace.ranks, strict=True)):
            for name in SAID.keys() & second.values(0).keys():
                assertions.that(
                    all(map(np.array_equal, first.values(0)[name], second.values(0)[name])),
                    f"seed {SEED}, epochs 0 and 3, rank {rank}: got other {SAID[name]} in the next run of the program, but "
                    "should be the same",
                    causes.RUN_IN_SEED(),
                )

    for_each(session, [replace(job, start=Start())], judge)
