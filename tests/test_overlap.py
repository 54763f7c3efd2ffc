"""All-reduces of buckets during backward, or after it: the same bits, counts and errors."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from socket_ranks import on_ranks, outcomes_of

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.optional_methods import Timed
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import BatchNorm, Embedding, Linear, ModelSpec, Scale, mlp
from ddpcheck.seeded_values import Array, key_of, numbers
from ddpcheck_implementations.data_parallel import EngineSettings, numpy_facets
from ddpcheck_implementations.data_parallel.overlap import CommunicationThread, OverlapChoice
from ddpcheck_implementations.data_parallel.replica import DataParallel
from ddpcheck_implementations.numpy_sockets.communicator import Communicator

DEEP = mlp((3, 8, 8, 2), dtype="float64")


def replica_of(comm: Any, model: ModelSpec, settings: EngineSettings) -> DataParallel:
    make = numpy_facets(comm, comm.rank, comm.world_size, settings=settings).make_replica
    assert make is not None
    replica = make(model, model.initial(comm.rank, "real"), OptimizerSpec("sgd", lr=0.1, momentum=0.9), {})
    assert isinstance(replica, DataParallel)
    return replica


def batch_of(rank: int, step: int) -> Batch:
    inputs = numbers((4, 3), "float64", "real", key_of(step, rank))
    return Batch(inputs, numbers((4, 2), "float64", "real", key_of(step, rank, 1)))


def spans_of(replica: Timed) -> list[tuple[str, float, float]]:
    return [(span.name, span.begin, span.end) for span in replica.timeline()]


def trained(settings: EngineSettings) -> Callable[[Communicator], dict[str, Array]]:
    """The state after some steps, and a backward without a step after it."""

    def program(comm: Communicator) -> dict[str, Array]:
        replica = replica_of(comm, DEEP, settings)
        for step in range(10):
            replica.zero_grad()
            with replica.no_sync():
                replica.backward(batch_of(comm.rank, step))
            replica.backward(batch_of(comm.rank, step + 100), 0.3)
            replica.backward(batch_of(comm.rank, step + 200))
            replica.clip(0.5)
            replica.step()
        return dict(replica.state())

    return program


def test_backward_completes_parameters_in_the_order_of_the_buckets() -> None:
    layers = (Embedding("e", 4, 3), BatchNorm("n", 3), Linear("a", 3, 3), Linear("b", 3, 3, uses="a"), Scale("s", 0))
    model = ModelSpec(layers)

    def program(comm: Communicator) -> Any:
        replica = replica_of(comm, model, EngineSettings(bucket_cap_mb=1e-6))
        replica.backward(Batch(np.array([0, 1]), np.ones((2, 3), np.float32)))
        return [bucket.names for bucket in replica._buckets], replica._network.learned, spans_of(replica)

    ((laid_out, learned, spans),) = on_ranks(1, program)
    assert [name for (name,) in laid_out] == list(reversed(learned))
    assert [name for name, _, _ in spans] == ["backward", *(f"all_reduce {place}" for place in range(len(learned)))]


def test_overlap_and_its_choice_change_no_bit() -> None:
    want = on_ranks(2, trained(EngineSettings(bucket_cap_mb=3e-4, overlap="off")))[0]
    for overlap in ("on", "auto"):
        for got in on_ranks(2, trained(EngineSettings(bucket_cap_mb=3e-4, overlap=overlap))):  # type: ignore[arg-type]
            assert got.keys() == want.keys()
            assert all(got[name].tobytes() == want[name].tobytes() for name in want)


def test_size_of_buckets_changes_no_bit_of_two_ranks() -> None:
    states = [on_ranks(2, trained(EngineSettings(bucket_cap_mb=cap, overlap="off")))[0] for cap in (1e-6, 3e-4, 25)]
    assert all(state[name].tobytes() == states[0][name].tobytes() for state in states for name in states[0])


def test_a_bucket_is_reduced_while_backward_goes_on() -> None:
    """Backward waits here until the first all-reduce has started, which would hang if that waited for backward."""

    class Telling:
        def __init__(self, comm: Communicator) -> None:
            self.rank, self.world_size, self.broadcast = comm.rank, comm.world_size, comm.broadcast
            self.comm, self.begun = comm, threading.Event()
            self.threads: set[str] = set()

        def all_reduce(self, array: Array, op: str) -> Array:
            self.threads.add(threading.current_thread().name)
            self.begun.set()
            return self.comm.all_reduce(array, op)

    def program(comm: Communicator) -> Any:
        telling = Telling(comm)
        replica = replica_of(telling, DEEP, EngineSettings(bucket_cap_mb=1e-6, overlap="on"))
        first = replica._network._layers[0]
        backward = first.backward

        def waiting(dy: Array, gradients: Any) -> Array:
            assert telling.begun.wait(20)
            return backward(dy, gradients)

        first.backward = waiting  # type: ignore[method-assign]
        replica.backward(batch_of(comm.rank, 0))
        return telling.threads, spans_of(replica)

    for threads, spans in on_ranks(2, program):
        assert threads == {"gradients"}
        assert [name for name, _, _ in spans] == ["backward", *(f"all_reduce {place}" for place in range(6))]
        (_, _, computed), (_, started, _), *_ = spans
        assert started < computed
        assert all(begin <= end for _, begin, end in spans)
        assert all(one[2] <= other[1] for one, other in itertools.pairwise(spans[1:]))
    assert "gradients" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_timeline_covers_the_last_backward_only(overlap: Any) -> None:
    def program(comm: Communicator) -> Any:
        replica = replica_of(comm, DEEP, EngineSettings(bucket_cap_mb=25, overlap=overlap))
        told = [spans_of(replica)]
        for _ in range(2):
            replica.backward(batch_of(comm.rank, 0))
            told.append(spans_of(replica))
        with replica.no_sync():
            replica.backward(batch_of(comm.rank, 0))
        return [*told, spans_of(replica)]

    for told in on_ranks(2, program):
        assert [[name for name, _, _ in spans] for spans in told] == [
            [],
            ["backward", "all_reduce 0"],
            ["backward", "all_reduce 0"],
            ["backward"],
        ]
        assert all(begin <= end for spans in told for _, begin, end in spans)
        assert told[1][0][1] < told[2][0][1] < told[3][0][1]


# ------------------------------------------------------------------------------------------------------------- errors


def test_an_error_during_overlap_is_raised_by_backward_on_every_rank() -> None:
    """Rank 1 fails in its second all-reduce. It raises the original error, and rank 0 an error of the connection."""

    class Failing:
        def __init__(self, comm: Communicator) -> None:
            self.rank, self.world_size, self.broadcast = comm.rank, comm.world_size, comm.broadcast
            self.comm, self.calls = comm, 0

        def all_reduce(self, array: Array, op: str) -> Array:
            self.calls += 1
            if self.rank == 1 and self.calls == 2:
                self.comm.close()
                raise OSError("the cable is out") from KeyError("its cause")
            return self.comm.all_reduce(array, op)

    calls: dict[int, int] = {}

    def program(comm: Communicator) -> None:
        failing = Failing(comm)
        replica = replica_of(failing, DEEP, EngineSettings(bucket_cap_mb=1e-6, overlap="on"))
        try:
            replica.backward(batch_of(comm.rank, 0))
        finally:
            calls[comm.rank] = failing.calls

    lost, failed = outcomes_of(2, program)
    assert isinstance(failed, OSError)
    assert str(failed) == "the cable is out"
    assert isinstance(failed.__cause__, KeyError)
    assert "rank 1" in str(lost)
    assert calls == {0: 2, 1: 2}  # the other four buckets are not started
    assert "gradients" not in {thread.name for thread in threading.enumerate()}


def test_failed_backward_drops_pending_reductions() -> None:
    done: list[int] = []
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        done.append(1)
        entered.set()
        leave.wait(20)

    def failing() -> None:
        with CommunicationThread() as thread:
            thread.submit(first)
            thread.submit(lambda: done.append(2))
            assert entered.wait(20)
            worker = thread._thread
            assert worker is not None
            join = worker.join
            worker.join = lambda: (leave.set(), join())  # type: ignore[assignment, method-assign, func-returns-value]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert done == [1]


def test_a_thread_does_its_work_in_order_and_a_block_without_work_starts_none() -> None:
    before = threading.active_count()
    done: list[int] = []
    with CommunicationThread() as thread:
        assert threading.active_count() == before
        for number in range(50):
            thread.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == list(range(50))


# ------------------------------------------------------------------------------------------------------------- choice


@pytest.mark.parametrize("faster", [True, False])
def test_auto_tries_both_ways_and_keeps_the_faster(faster: bool) -> None:
    choice = OverlapChoice("auto")
    choice.record(0.0)  # of the first backward
    tried = []
    for _ in range(2 * OverlapChoice.TRIALS):
        tried.append(choice.overlaps())
        choice.record(1.0 if choice.overlaps() is faster else 2.0)
    assert sorted(tried) == [False] * OverlapChoice.TRIALS + [True] * OverlapChoice.TRIALS
    for seconds in (9.0, 0.0):
        assert choice.overlaps() is faster
        choice.record(seconds)


def test_explicit_options_are_not_tuned() -> None:
    for overlap, want in (("on", True), ("off", False)):
        choice = OverlapChoice(overlap)  # type: ignore[arg-type]
        for _ in range(20):
            assert choice.overlaps() is want
            choice.record(1.0)
