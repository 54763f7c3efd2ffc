"""Jobs per second of a running Session, by pytest-benchmark: `pytest benchmarks --ddp-adapter numpy_sockets`.

The Jobs are three-step trainings made in advance, and whole checks, which draw Jobs, run them and judge every Trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ddpcheck.running.check_runner import run_check
from ddpcheck.running.plan import installed_checks
from ddpcheck.session import Session

from .harness_speed_jobs import three_steps

JOBS = 100

JUDGED = (
    "check_gradients_equal_the_large_batch_exactly",
    "check_parameters_after_sgd_steps_are_exact",
    "check_sgd_matches_one_process",
)


@pytest.fixture(params=[1, 2, 4], ids=lambda size: f"w{size}")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    adapters = request.config.getoption("--ddp-adapter") or ["numpy_sockets"]
    with Session(adapters[0], request.param) as running:
        running.run(three_steps(request.param))
        yield running


def test_three_step_jobs(session: Session, benchmark: Any) -> None:
    """One round is 100 Jobs, several of them at the same time."""
    jobs = [three_steps(session.world_size, seed) for seed in range(JOBS)]
    traces = benchmark(lambda: list(session.run_many(jobs)))
    assert all(trace.completed for trace in traces)
    benchmark.extra_info["jobs_per_round"] = JOBS


@pytest.mark.parametrize("name", JUDGED, ids=lambda name: name.removeprefix("check_"))
def test_drawing_and_judging(session: Session, benchmark: Any, name: str) -> None:
    """One round is a whole check with `jobs_per_round` Jobs, one after the other."""
    check = next(check for check in installed_checks() if check.name == name)
    session.effort = JOBS
    before = session.jobs_run
    verdict = benchmark.pedantic(run_check, args=(session, check), rounds=5, warmup_rounds=1)
    assert verdict.ok, verdict
    benchmark.extra_info["jobs_per_round"] = (session.jobs_run - before) // 6
