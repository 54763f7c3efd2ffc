"""Jobs per second of a warm Session, by pytest-benchmark: `pytest benchmarks --ddp-adapter numpy_sockets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ddpcheck.session import Session

from .workloads import three_steps

JOBS = 100


@pytest.fixture(params=[1, 2, 4], ids=lambda size: f"w{size}")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    adapters = request.config.getoption("--ddp-adapter") or ["numpy_sockets"]
    with Session(adapters[0], request.param) as running:
        running.run(three_steps(request.param))
        yield running


def test_three_step_jobs(session: Session, benchmark: Any) -> None:
    """One round is 100 Jobs, several of them under way at once."""
    jobs = [three_steps(session.world_size, seed) for seed in range(JOBS)]
    traces = benchmark(lambda: list(session.run_many(jobs)))
    assert all(trace.completed for trace in traces)
    benchmark.extra_info["jobs_per_round"] = JOBS
