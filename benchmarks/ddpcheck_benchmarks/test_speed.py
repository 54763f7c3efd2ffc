"""Collectives and training steps by pytest-benchmark, with clocks on the ranks.

pytest --pyargs ddpcheck_benchmarks.test_speed --ddp-adapter my_ddp:adapter --benchmark-json new.json
pytest-benchmark compare old.json new.json

A round is a burst of iterations on running ranks; its time is the median over them of the slowest rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ddpcheck.contract import ReplicaMethod, needs
from ddpcheck.job import Job
from ddpcheck.session import Session
from ddpcheck.storage.environment import visible_cores
from ddpcheck.trace import Trace

from .collective_cases import COLLECTIVES, cases
from .defaults import Scope
from .rank_times import slowest, stamps, why
from .sizes import named
from .step_cases import StepCase

pytest.importorskip("pytest_benchmark", reason="pip install 'ddpcheck[bench]'")

SIZES = (4, 64 << 10, 4 << 20)
ROUNDS = 10
_QUICK = Scope.of(quick=True, hosts=False).effort


class RankClock:
    """A clock that advances by the ranks' own measurements, so that pytest-benchmark reports them."""

    def __init__(self) -> None:
        self._now = 0.0

    def read(self) -> float:
        return self._now

    def advance(self, trace: Trace, parts: int) -> None:
        """Advance by the median of the slowest rank's time for one of `parts`. AssertionError if a rank failed."""
        assert trace.completed, why(trace)
        self._now += float(np.median(slowest(stamps(trace, 0, "begin"), stamps(trace, 0, "end")))) / parts


CLOCK = RankClock()
timed_on_ranks = pytest.mark.benchmark(timer=CLOCK.read)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ranks" in metafunc.fixturenames:
        adapters = metafunc.config.getoption("--ddp-adapter") or ["numpy_sockets"]
        sizes = [int(size) for size in (metafunc.config.getoption("--ddp-world-sizes") or "2").split(",")]
        places = [(adapter, size) for adapter in adapters for size in sizes]
        names = [f"{adapter.rpartition('.')[2]}-p{size}" for adapter, size in places]
        metafunc.parametrize("ranks", places, indirect=True, ids=names, scope="module")


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest) -> Iterator[Session]:
    adapter, world_size = request.param
    with Session(adapter, world_size, deadline=120.0) as session:
        yield session


def _median(benchmark: Any) -> float | None:
    """The measured median; None if pytest-benchmark is switched off."""
    return None if benchmark.stats is None else float(benchmark.stats.stats.median)


@timed_on_ranks
@pytest.mark.parametrize("size", SIZES, ids=named)
@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name != "barrier"])
def test_collective(ranks: Session, benchmark: Any, collective: Any, size: int) -> None:
    found = cases(ranks.adapter.name, ranks.capabilities, ranks.world_size, (collective,), (size,))
    if not found:
        pytest.skip(
            needs.collectives.operations(collective).lacking(ranks.capabilities, ranks.world_size) or "needs two ranks"
        )
    case = found[0]
    look = ranks.run(Job(ranks.world_size, (case.operation(2, 3, 1),)))
    assert look.completed, why(look)
    seconds = float(slowest(stamps(look, 0, "begin"), stamps(look, 0, "end")).min())
    calls = _QUICK.calls(seconds)
    job = Job(ranks.world_size, (case.operation(1, _QUICK.iterations(seconds * calls), calls),))
    wrong = 0

    def burst() -> None:
        nonlocal wrong
        trace = ranks.run(job)
        CLOCK.advance(trace, calls * case.messages)
        wrong += sum(trace.values(0, "wrong"))

    benchmark.group = collective
    benchmark.pedantic(burst, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info.update(case.info(_median(benchmark) or seconds, visible_cores()), wrong=wrong)
    assert not wrong, f"{wrong} elements are wrong"


@timed_on_ranks
@pytest.mark.parametrize("synced", [True, False], ids=["synced", "no_sync"])
def test_step(ranks: Session, benchmark: Any, synced: bool) -> None:
    lacks = needs.replica.lacking(ranks.capabilities, ranks.world_size)
    if lacks or not (synced or ranks.capabilities.has(ReplicaMethod.NO_SYNC)):
        pytest.skip(lacks or "no_sync is not promised")
    case = StepCase(ranks.adapter.name, ranks.world_size, "small", "weak")
    job = case.job([case.steps(5, 10, synced=synced)])
    benchmark.group = "step"
    benchmark.pedantic(lambda: CLOCK.advance(ranks.run(job), 1), rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info.update(case.info(visible_cores()), synced=synced)
