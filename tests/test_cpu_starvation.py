"""A time limit ends for slow processes, and is extended for processes without a processor."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from ddpcheck.launchers import cpu_starvation
from ddpcheck.launchers.cpu_starvation import Patience


@dataclass
class Machine:
    """A clock, and the part of its seconds in which the one process waits for a processor."""

    now: float = 0.0
    waited: dict[int, float] = field(default_factory=lambda: {1: 0.0})

    def passes(self, seconds: float, *, share: float) -> None:
        self.now += seconds
        self.waited[1] += share * seconds

    def threads(self) -> list[dict[int, float]]:
        return [dict(self.waited)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(cpu_starvation, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_a_limit_passes_for_a_process_that_is_only_slow(machine: Machine) -> None:
    patience = Patience(10.0)
    machine.passes(9.0, share=1.0)
    assert not patience.is_over(machine.threads)
    assert patience.left == 1.0
    machine.passes(2.0, share=0.5)
    assert not patience.is_over(machine.threads)  # the measurement starts here
    machine.passes(2.1, share=0.5)
    assert patience.is_over(machine.threads)


def test_a_limit_waits_for_a_process_that_gets_no_processor_but_not_for_ever(machine: Machine) -> None:
    patience = Patience(10.0)
    machine.passes(10.0, share=1.0)
    for _ in range(20):
        assert not patience.is_over(machine.threads)
        machine.passes(2.1, share=0.95)
    assert not patience.is_over(machine.threads)
    machine.passes(2.1, share=0.1)
    assert patience.is_over(machine.threads)
    machine.passes(100.0, share=1.0)
    assert patience.is_over(machine.threads)


@pytest.mark.parametrize(("share", "over"), [(0.5, True), (0.75, False)])
def test_four_ranks_that_busy_wait_on_two_processors_are_not_starved_but_with_a_quarter_they_are(
    machine: Machine, share: float, *, over: bool
) -> None:
    patience = Patience(10.0)
    machine.passes(10.0, share=share)
    assert not patience.is_over(machine.threads)
    machine.passes(2.1, share=share)
    assert patience.is_over(machine.threads) == over


def test_where_the_system_counts_nothing_a_limit_is_one(machine: Machine) -> None:
    patience = Patience(10.0)
    machine.waited.clear()
    machine.now = 10.0
    assert not patience.is_over(machine.threads)
    machine.now = 12.0
    assert patience.is_over(machine.threads)
