"""Tests of the checks of collectives, samplers, metrics, scores, random numbers and failures.

Each fault is caught by the checks that it names, with the expected cause; correct but unusual adapters pass. Ranks are
processes, and communicate over sockets.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import sessions
from chosen_faults import chosen, names_cause, some
from expected_parameters import NUMBERS, PARAMETERS, tells_parameters

from ddpcheck.checks import Check, unmet_need
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.numerics import same_bits
from ddpcheck.oracle.collectives import wants
from ddpcheck.session import Session
from ddpcheck.verdict import Finding
from ddpcheck_implementations.faulty import Registered, faults, unusual
from ddpcheck_properties import CHECKS
from ddpcheck_properties.strategies_collectives import exact_tensor

FAMILIES = ("collectives", "sampler", "metrics", "scores", "randomness", "failures", "rendezvous", "wire")
MINE = {check.name: check for check in CHECKS if check.family in FAMILIES}
FAULTS = [found for found in faults() if set(found.caught_by) <= MINE.keys()]
UNUSUAL = [found for found in unusual() if found.adapter.capabilities.facets != {"replica"}]


def name_of(found: Registered) -> str:
    return found.name


def session_of(found: Registered, effort: int = 2, *, hangs: bool = True) -> Session:
    """A session for a fault. hangs: whether the adapter may hang; others get a long deadline, since the machine may be
    busy.
    """
    deadline = 1.5 if hangs and found.family != "collectives.wasteful" else 20.0
    return sessions.session(
        found.adapter, found.world_size, deadline=deadline, grace=0.3, effort=effort, deep=found.deep
    )


def applicable(session: Session) -> list[Check]:
    promised, world = session.capabilities, session.world_size
    return [check for check in MINE.values() if not unmet_need(check, promised, world)]


@pytest.mark.parametrize("fault", chosen(FAULTS), ids=name_of)
def test_each_fault_is_caught_by_every_check_that_it_names(fault: Registered) -> None:
    with session_of(fault) as session:
        for position, name in enumerate(fault.caught_by):
            assert MINE[name] in applicable(session)
            with pytest.raises(Finding) as caught:
                MINE[name].function(session)
            diagnosis = caught.value.diagnosis
            assert caught.value.job is not None
            assert re.search(r"\brank", diagnosis.headline), diagnosis.headline
            assert "\n" not in diagnosis.headline
            if position == 0:
                assert names_cause(diagnosis, fault.cause), diagnosis.text()
                assert tells_parameters(diagnosis, fault), diagnosis.text()


@pytest.mark.parametrize("number", range(len(UNUSUAL)), ids=lambda number: name_of(UNUSUAL[number]))
def test_unusual_but_correct_adapters_pass(number: int) -> None:
    with session_of(UNUSUAL[number], effort=3, hangs=False) as session:
        for check in some(applicable(session), number):
            check.function(session)


def test_faults_whose_parameters_are_told_exist() -> None:
    assert sorted({*PARAMETERS, *NUMBERS} - {fault.name for fault in faults()}) == []


def test_every_check_has_a_fault_that_it_must_catch() -> None:
    caught = {name for fault in FAULTS for name in fault.caught_by}
    assert caught <= MINE.keys()
    assert sorted(MINE.keys() - caught) == []


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_each_rank_is_somewhere_the_only_one_with_a_nan(world_size: int) -> None:
    arrays = [TensorSpec((96,), "float32", "nonfinite").on(rank) for rank in range(world_size)]
    columns = [np.isnan(column).tolist() for column in np.transpose(arrays)]
    alone = {nans.index(True) for nans in columns if sum(nans) == 1}
    assert alone == set(range(world_size))


@pytest.mark.parametrize("reduction", ["sum", "mean", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 7])
def test_exact_tensors_have_the_same_result_in_any_order(reduction: str, dtype: str, world_size: int) -> None:
    tensor = exact_tensor((50,), dtype, reduction, world_size)
    operation = AllReduce(tensor, reduction)  # type: ignore[arg-type]  # a parameter of the test, one of the literals
    forwards = wants(operation, tuple(range(world_size)))[0]
    arrays = [tensor.on(rank) for rank in range(world_size)][::-1]
    result = arrays[0]
    for array in arrays[1:]:
        result = result * array if reduction == "prod" else result + array
    assert forwards.bound is None
    assert same_bits((result / world_size if reduction == "mean" else result).astype(dtype), forwards.value)


def test_the_bound_of_a_real_sum_holds_and_is_tight() -> None:
    tensor = replace(exact_tensor((50,), "float32", "sum", 3), values="real", step=1)
    want = wants(AllReduce(tensor), (0, 1, 2))[0]
    got = tensor.on(0) + tensor.on(1) + tensor.on(2)
    assert want.bound is not None
    assert (abs(got - want.value) <= want.bound).all()
    assert (want.bound < 1e-5).all()
