"""The values of measuring operations, and the count of wrong elements."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ddpcheck import Adapter, Facets, Job, RankContext, Session
from ddpcheck.execution.timing import measured_collective, pattern
from ddpcheck.job import DataSpec
from ddpcheck.models.spec import mlp
from ddpcheck.operations.timing import Collective, MeasureCollective, MeasureSteps
from ddpcheck_implementations.numpy_sockets import adapter as numpy_sockets

KINDS: tuple[Collective, ...] = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv", "barrier")


class _LastElementLost:
    """The reference without the last element of each reduction."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def all_reduce(self, array: npt.NDArray[Any], op: str = "sum", *, group: Any = None) -> Any:
        result = self.comm.all_reduce(array, op, group=group)
        result[-1:] = array[-1:]
        return result


def _connect(context: RankContext) -> Facets:
    facets = numpy_sockets.connect(context)
    return dataclasses.replace(facets, collectives=_LastElementLost(facets.collectives))


losing = Adapter("losing", _connect, numpy_sockets.capabilities)


def test_every_collective_is_timed_and_right() -> None:
    job = Job(3, tuple(MeasureCollective(kind, 300, iterations=4) for kind in KINDS))
    assert Job.from_plain(job.to_plain()) == job
    with Session("numpy_sockets", 3) as session:
        trace = session.run(job)
    assert trace.completed
    for rank in trace.ranks:
        for position, _ in enumerate(KINDS):
            values = rank.values(position)
            assert values["wrong"] == 0
            assert values["begin"].shape == values["end"].shape == (4,)
            assert (values["end"] > values["begin"]).all()
            assert (values["begin"][1:] >= values["end"][:-1]).all()


def test_wrong_elements_are_counted_before_and_after() -> None:
    with Session(losing, 2) as session:
        trace = session.run(Job(2, (MeasureCollective("all_reduce", 50), MeasureCollective("broadcast", 50))))
    assert [rank.values(0)["wrong"] for rank in trace.ranks] == [2, 2]
    assert [rank.values(1)["wrong"] for rank in trace.ranks] == [0, 0]


class _Doubling:
    """Collectives that sum in place as for two equal ranks. An overflow is a warning, and so an error here."""

    empty = staticmethod(np.empty)

    def barrier(self) -> None: ...

    def all_reduce_in_place(self, array: npt.NDArray[Any]) -> None:
        np.add(array, array, out=array)


def test_sums_in_place_do_not_grow_however_many_are_timed() -> None:
    operation = MeasureCollective("all_reduce", 8, in_place=True, iterations=3, calls=200)
    values = measured_collective(_Doubling(), None, operation, rank=0, world_size=2)
    assert (values["end"] > values["begin"]).all()


@pytest.mark.parametrize("synced", [True, False])
def test_steps_are_timed_in_their_parts(synced: bool) -> None:
    data = DataSpec(4, "real")
    job = Job(2, (MeasureSteps(((0, 1), (2, 3)), synced=synced, iterations=5),), mlp((3, 4, 2)), data=data)
    with Session("numpy_sockets", 2) as session:
        trace = session.run(job)
    for rank in trace.ranks:
        values = rank.values(0)
        assert (values["begin"] < values["backward_end"]).all()
        assert (values["backward_end"] < values["end"]).all()
        assert values["end"].shape == (5,)
        assert values["peak"] > 1000


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (MeasureCollective("all_gather", 3), "3 elements cannot be divided"),
        (MeasureCollective("broadcast", 4, in_place=True), "broadcast cannot work in place"),
    ],
)
def test_unmeasurable_case_is_reported(operation: MeasureCollective, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Job(2, (operation,))


def test_patterns_differ_from_rank_to_rank_and_their_sums_are_exact() -> None:
    own = [pattern(1000, rank, "float16") for rank in range(8)]
    assert all((a != b).any() for a, b in itertools.pairwise(own))
    assert np.abs(own).max() == 8
    assert (np.sum(own, 0, dtype=np.float64) == np.sum(own, 0, dtype=np.float16)).all()
