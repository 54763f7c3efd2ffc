"""Causes of wrong local gradients that only a Job with two backwards inside no_sync tells apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.causes import Cause
from ddpcheck.causes.gradients import DIVIDED_BY_MICRO_BATCHES
from ddpcheck.job import Backward, Job, ZeroGrad
from ddpcheck.models.spec import mlp

from ..drawing import finding_on
from ..strategies import GRADIENTS, shards, training_job
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session


def causes_of_two_inside(session: Session) -> tuple[Cause, ...]:
    """The causes of wrong gradients after two backwards inside no_sync; none if they are right. A factor of 2 is that of
    two ranks, since one backward shows it, too.
    """
    finding = finding_on(session, two_inside(session.world_size), as_one_process(session.capabilities))
    told = () if finding is None else finding.diagnosis.causes
    return tuple(sorted(told, key=lambda cause: cause.id == DIVIDED_BY_MICRO_BATCHES.id))


def two_inside(world_size: int) -> Job:
    """Two backwards inside no_sync, of different gradients."""
    backwards = [Backward(shards([2] * world_size, start * world_size), sync=False) for start in (0, 2)]
    return training_job(world_size, mlp((2, 3, 2)), [ZeroGrad(), *backwards, *GRADIENTS])
