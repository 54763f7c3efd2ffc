"""Causes of wrong gradients in windows of no_sync that only another Job tells apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import filterfalse
from typing import TYPE_CHECKING

from ddpcheck.causes import Cause, programs
from ddpcheck.causes.gradients import DIVIDED_BY_MICRO_BATCHES
from ddpcheck.job import Backward, CloseWindow, Job, OpenWindow, Operation, ZeroGrad
from ddpcheck.models.spec import mlp
from ddpcheck.verdict import Finding

from ..judges import finding_on
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


@contextmanager
def blaming_no_sync(session: Session) -> Iterator[None]:
    """Blame no_sync first for a gradient that is not reduced after it, or too early, if the Job passes without its local
    backwards.
    """
    try:
        yield
    except Finding as finding:
        told = finding.diagnosis.causes
        named = [cause for cause in told if any(kind.explains((cause,)) for kind in _AFTER_NO_SYNC)]
        if not named or finding.job is None:
            raise
        without = replace(finding.job, operations=tuple(filterfalse(_belongs_to_no_sync, finding.job.operations)))
        if finding_on(session, without, as_one_process(session.capabilities)) is not None:
            raise
        led = (cause.but("likely") for cause in named)
        raise finding.blaming(*led, *(each for each in told if each not in named)) from None


_AFTER_NO_SYNC = (programs.NOT_REDUCED_AFTER_NO_SYNC, programs.REDUCED_EARLY_AFTER_NO_SYNC)
"""Causes that name a backward inside no_sync as a condition, which another Job must show."""


def _belongs_to_no_sync(operation: Operation) -> bool:
    return isinstance(operation, OpenWindow | CloseWindow) or (isinstance(operation, Backward) and not operation.sync)
