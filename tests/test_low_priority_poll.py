"""The driver gives way to the ranks while it waits for them, and only then."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator

import pytest

from ddpcheck import Session
from ddpcheck.ranks import low_priority_poll
from ddpcheck_benchmarks.harness_speed_jobs import three_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="policies of Linux's scheduler")


class Watched:
    """A poller that records the scheduling policy of its caller."""

    def __init__(self) -> None:
        self.policy = -1

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self.policy = os.sched_getscheduler(0)
        return select.poll().poll(milliseconds)


@pytest.fixture
def chosen() -> Iterator[int]:
    """The user has chosen a policy for this thread."""
    before = os.sched_getscheduler(0)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    yield os.SCHED_BATCH
    os.sched_setscheduler(0, before, os.sched_param(0))


def test_the_driver_waits_as_a_batch_thread_and_is_an_ordinary_one_again() -> None:
    watched = Watched()
    assert low_priority_poll.poll(watched, 0) == []  # type: ignore[arg-type]
    assert (watched.policy, os.sched_getscheduler(0)) == (os.SCHED_BATCH, os.SCHED_OTHER)


def test_a_policy_that_was_chosen_is_left_alone(chosen: int) -> None:
    low_priority_poll.poll(select.poll(), 0)
    assert os.sched_getscheduler(0) == chosen


def test_ranks_do_not_inherit_it() -> None:
    with Session("numpy_sockets", 2) as session:
        traces = list(session.run_many(three_steps(2, seed) for seed in range(20)))
        assert all(trace.completed for trace in traces)
        assert {os.sched_getscheduler(pid) for pid in session.pids} == {os.SCHED_OTHER}
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
