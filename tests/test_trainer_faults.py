"""Tests of the checks of training runs: each fault is caught by the checks that it names, with the expected cause, and
correct runs pass.
"""

from __future__ import annotations

from functools import partial

import pytest
import sessions
from chosen_faults import chosen, names_cause, some
from in_threads import ThreadedSession

from ddpcheck.checks import Check, unmet_need
from ddpcheck.contract import Capabilities
from ddpcheck.verdict import Finding
from ddpcheck_implementations.data_parallel.trainer import Trainer
from ddpcheck_implementations.faulty import Registered, faults, unusual
from ddpcheck_implementations.faulty.trainers import PROMISED, facets
from ddpcheck_properties import CHECKS

MINE = {check.name: check for check in CHECKS if check.family == "trainer"}
FAULTS = [found for found in faults() if set(found.caught_by) <= MINE.keys()]
CORRECT = [found for found in unusual() if "trainer" in found.adapter.capabilities.facets]


def session_of(made: type[Trainer], world_size: int, promised: Capabilities) -> ThreadedSession:
    return ThreadedSession(partial(facets, made), world_size, promised, effort=8)


def applicable(world_size: int, promised: Capabilities) -> list[Check]:
    return [check for check in MINE.values() if not unmet_need(check, promised, world_size)]


def name_of(found: Registered) -> str:
    return found.name


@pytest.mark.parametrize("fault", chosen(FAULTS), ids=name_of)
def test_each_fault_is_caught_by_every_check_that_it_names(fault: Registered) -> None:
    promised = fault.adapter.capabilities
    for position, name in enumerate(fault.caught_by):
        assert MINE[name] in applicable(fault.world_size, promised)
        with pytest.raises(Finding) as caught:
            MINE[name].function(session_of(fault.made, fault.world_size, promised))
        assert caught.value.job is not None
        if position == 0:
            assert names_cause(caught.value.diagnosis, fault.cause), caught.value.diagnosis.text()


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("found", CORRECT, ids=name_of)
def test_unusual_but_correct_adapters_pass(found: Registered, world_size: int) -> None:
    promised = found.adapter.capabilities
    for check in some(applicable(world_size, promised), world_size + CORRECT.index(found)):
        check.function(session_of(found.made, world_size, promised))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_a_right_run_raises_no_alarm(world_size: int) -> None:
    for check in some(applicable(world_size, PROMISED), world_size):
        check.function(session_of(Trainer, world_size, PROMISED))


def test_every_check_has_a_fault_that_it_must_catch() -> None:
    assert {name for fault in FAULTS for name in fault.caught_by} == set(MINE)


@pytest.mark.parametrize("name", ["mkdir-race", "every-rank-writes-same-file"])
def test_what_real_ranks_do_to_files_is_seen(name: str) -> None:
    (fault,) = (found for found in FAULTS if found.name == name)
    with sessions.session(fault.adapter, 2, effort=2) as session, pytest.raises(Finding) as caught:
        MINE[fault.caught_by[0]].function(session)
    assert names_cause(caught.value.diagnosis, fault.cause), caught.value.diagnosis.text()
