"""Tests of the checks of replicas: each fault is caught by the checks that it names, and correct replicas pass."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import sessions
from chosen_faults import chosen, names_cause, some
from expected_parameters import tells_parameters
from in_threads import ThreadCollectives, ThreadedSession

from ddpcheck.causes import gradients, programs, replicas
from ddpcheck.checks import Check, unmet_need
from ddpcheck.contract import Capabilities, ReplicaMethod, ReplicaSync
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import Linear, ModelSpec, Scale
from ddpcheck.oracle import is_exact
from ddpcheck.seeded_values import Array
from ddpcheck.verdict import Finding
from ddpcheck_implementations.faulty import PlainReplica, Registered, faults, unusual
from ddpcheck_implementations.faulty.base import PROMISED, facets
from ddpcheck_properties import CHECKS, explicit_examples
from ddpcheck_properties.replicas import kinds_of_parameters

FAMILIES = ("gradients", "trajectories", "accumulation", "unused", "buckets", "replica_sync", "programs")
MINE = {check.name: check for check in CHECKS if check.family in FAMILIES}
UNUSUAL = [found for found in unusual() if isinstance(found.made, type) and issubclass(found.made, PlainReplica)]
FAULTS = [found for found in faults() if set(found.caught_by) <= MINE.keys()]


def session_of(
    replica: type[PlainReplica], world_size: int, capabilities: Capabilities, effort: int, *, deep: bool = False
) -> ThreadedSession:
    return ThreadedSession(partial(facets, replica), world_size, capabilities, effort, deep=deep)


def applicable(world_size: int, capabilities: Capabilities) -> list[Check]:
    """Without the laws on resources of a process, since ranks that are threads share them; references are tested as
    processes. Without the law on torch.distributed, which these replicas do not use.
    """
    fit = [check for check in MINE.values() if not unmet_need(check, capabilities, world_size)]
    return [check for check in fit if not check.name.endswith(("_process_state_unchanged", "_awaited_and_left_alone"))]


def opened(fault: Registered) -> AbstractContextManager[Any]:
    """A session of threads, or of processes if threads would hide the fault."""
    if fault.made.between_processes:
        return sessions.session(
            fault.adapter, fault.world_size, deadline=10.0 if fault.adapter.requires else 1.5, grace=0.3, effort=2
        )
    capabilities = fault.adapter.capabilities
    return nullcontext(session_of(fault.made, fault.world_size, capabilities, effort=25, deep=fault.deep))


@pytest.mark.parametrize("fault", chosen(FAULTS), ids=lambda fault: fault.made.__name__)
def test_each_fault_is_caught_by_every_check_that_it_names(fault: Registered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)  # tox sets it
    with opened(fault) as session:
        for position, name in enumerate(fault.caught_by):
            check = MINE[name]
            assert unmet_need(check, fault.adapter.capabilities, fault.world_size) is None
            with pytest.raises(Finding) as caught:
                check.function(session)
            assert caught.value.job is not None
            if position == 0:
                assert names_cause(caught.value.diagnosis, fault.cause), caught.value.diagnosis.text()
                assert tells_parameters(caught.value.diagnosis, fault), caught.value.diagnosis.text()


def test_gradients_are_judged_although_a_loss_is_reported_wrong() -> None:
    made = {fault.name: fault.made for fault in FAULTS}
    both = type("Both", (made["loss-of-all-ranks-told"], made["unused-grad-zero-not-none"]), {})
    with pytest.raises(Finding) as caught:
        MINE["check_globally_unused_parameters_have_promised_gradient"].function(
            session_of(both, 2, PROMISED, effort=8)
        )
    assert programs.ZERO_FOR_NONE.explains(caught.value.diagnosis.causes)
    with pytest.raises(Finding) as caught:
        MINE["check_gradients_equal_the_large_batch_exactly"].function(session_of(both, 2, PROMISED, effort=8))
    assert gradients.LOSS_AVERAGED.explains(caught.value.diagnosis.causes)


def test_loss_shows_in_how_many_bits_ids_are_stored() -> None:
    made = {fault.name: fault.made for fault in FAULTS}
    for name, bits in (("ids-in-two-bytes", 15), ("labels-in-a-signed-byte", 7)):
        with pytest.raises(Finding) as caught:
            MINE["check_ids_and_labels_may_exceed_16_bits"].function(session_of(made[name], 2, PROMISED, effort=8))
        cause = caught.value.diagnosis.cause
        assert cause is not None
        assert (cause.id, cause.get("bits"), cause.certainty) == (replicas.IDS_NARROWED.id, (bits,), "likely")


def test_mean_loss_of_all_ranks_is_nan_if_one_loss_is() -> None:
    made = {fault.name: fault.made for fault in FAULTS}
    with pytest.raises(Finding) as caught:
        MINE["check_zero_grad_clears_nan_gradients"].function(
            session_of(made["loss-of-all-ranks-told"], 2, PROMISED, effort=8)
        )
    assert gradients.LOSS_AVERAGED.explains(caught.value.diagnosis.causes)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_a_correct_replica_passes_every_check(world_size: int) -> None:
    session = session_of(PlainReplica, world_size, PROMISED, effort=8)
    for check in applicable(world_size, PROMISED):
        check.function(session)


@pytest.mark.parametrize("number", range(len(UNUSUAL)), ids=lambda number: UNUSUAL[number].made.__name__)
def test_unusual_but_correct_adapters_pass(number: int) -> None:
    found = UNUSUAL[number]
    world_size, promised = max(found.world_size, 2 + number % 2), found.adapter.capabilities
    session = session_of(found.made, world_size, promised, effort=2)
    session.random_seed = zlib.crc32(found.name.encode()) + world_size
    for check in some(applicable(world_size, promised), number):
        check.function(session)


def test_few_promises_are_enough() -> None:
    capabilities = PROMISED.but(replica_dtypes=frozenset({"float32"}), model_features=frozenset())
    session = session_of(PlainReplica, 3, capabilities, effort=8)
    for check in applicable(3, capabilities):
        check.function(session)


@pytest.mark.parametrize("world_size", range(1, 6))
def test_models_of_several_dtypes_have_both(world_size: int) -> None:
    for job in kinds_of_parameters.exact_in_both(world_size):
        assert job.model is not None
        assert job.model.dtype == "float32"
        assert is_exact(job, PROMISED)
        assert {tensor.dtype for tensor in job.model.tensors()} == {"float32", "float64"}


def strict(promised: Capabilities) -> type[PlainReplica]:
    """A correct replica that keeps its promises, and raises on every other request."""

    class Strict(PlainReplica):
        def __init__(
            self,
            model: ModelSpec,
            initial: Mapping[str, Array],
            optimizer: OptimizerSpec,
            comm: ThreadCollectives,
            rank: int,
            world: int,
        ) -> None:
            assert model.dtype in promised.replica.replica_dtypes
            assert model.features() <= promised.replica.model_features
            assert optimizer.name in promised.replica.optimizers
            super().__init__(model, initial, optimizer, comm, rank, world)

        def start(self, model: ModelSpec) -> None:
            shared = dict(self.network.parameters) if promised.replica.replica_sync >= ReplicaSync.PARAMETERS else {}
            shared |= self.network.buffers if promised.replica.replica_sync >= ReplicaSync.BUFFERS else {}
            for array in shared.values():
                array[...] = self.comm.broadcast(array)

        def before_forward(self) -> None:
            if promised.replica.replica_sync >= ReplicaSync.BUFFERS:
                super().before_forward()

        def no_sync(self) -> Any:
            assert promised.has(ReplicaMethod.NO_SYNC)
            return super().no_sync()

        def clip(self, max_norm: float) -> float:
            assert promised.has(ReplicaMethod.CLIPPING)
            return super().clip(max_norm)

        def state(self) -> dict[str, Array]:
            assert promised.has(ReplicaMethod.CHECKPOINT)
            return super().state()

    return Strict


NARROWER: list[dict[str, object]] = [
    {"replica_dtypes": frozenset({"float32"})},
    {"replica_dtypes": frozenset({"float64"})},
    {"optimizers": frozenset({"sgd"})},
    {"optimizers": frozenset({"adam"})},
    {"replica_sync": ReplicaSync.NOTHING},
    {"replica_sync": ReplicaSync.PARAMETERS},
    {"no_sync": False, "clipping": False, "checkpoint": False},
    {"model_features": frozenset({"branch"})},
    {"model_features": frozenset()},
]
"""Narrower promises, in place of the replicas' own."""


@pytest.mark.parametrize("number", range(len(NARROWER)), ids=lambda number: "-".join(NARROWER[number]))
def test_nothing_is_asked_that_was_not_promised(number: int) -> None:
    capabilities = PROMISED.but(**NARROWER[number])
    session = session_of(strict(capabilities), 2, capabilities, effort=6)
    for check in some(applicable(2, capabilities), number):
        check.function(session)


def test_ranks_of_the_construction_examples_start_different() -> None:
    layers = Linear("fc1", 3, 4, frozen=True), Scale("buffer", 4, buffer=True), Linear("fc2", 4, 2)
    job = explicit_examples.construction(2, *layers, exact=False)
    first, second = job.initial(0), job.initial(1)
    assert all((first[name] != second[name]).any() for name in first)


def test_every_check_of_replicas_has_a_fault_that_it_catches() -> None:
    assert set(MINE) == {name for fault in FAULTS for name in fault.caught_by}
