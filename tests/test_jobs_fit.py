"""Every check makes Jobs that can run at every world size up to 8, as far as its first Jobs show."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import pytest

from ddpcheck import Session
from ddpcheck.job import Job
from ddpcheck.running.plan import plan
from ddpcheck.trace import Trace
from ddpcheck.verdict import CannotTell
from ddpcheck_properties import CHECKS


class Seen(Exception):
    """The Jobs of a check have been made, and the test needs no more."""


class NeverStarted(Session):
    """A session that never starts: a Job that cannot run is an error as soon as it is made."""

    def run(self, job: Job) -> Trace:
        raise Seen

    def run_many(self, jobs: Iterable[Job]) -> Generator[Trace, None, None]:
        assert all(job.world_size == self.world_size for job in jobs)
        raise Seen
        yield

    def trial(self, *args: Any, **options: Any) -> Any:
        raise Seen

    def start(self, conditions: Any = None) -> None:
        raise Seen


@pytest.mark.parametrize("world_size", range(1, 9))
def test_jobs_can_run(world_size: int) -> None:
    wrong = {}
    for item in plan("numpy_sockets", [world_size], CHECKS):
        if not item.skip:
            try:
                item.check.function(NeverStarted(item.adapter, world_size, effort=5))
                wrong[item.check.name] = "it made no Job"
            except (Seen, CannotTell):
                pass
            except ValueError as error:
                wrong[item.check.name] = str(error)
    assert not wrong
