"""numpy_mpi's own work around MPI: large all-reduces in pieces, and what it counts."""

from __future__ import annotations

import numpy as np
import pytest

from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec, Wait
from ddpcheck.launchers.mpi import find_mpi
from ddpcheck.operations.measure import MeasureCollective

pytest.importorskip("mpi4py", reason="pip install ddpcheck[mpi]")
pytestmark = pytest.mark.skipif(find_mpi() is None, reason="no mpiexec: pip install mpich")

LARGE = (9 << 20) // 8 + 3
"""float64 elements of a message that is cut, the last piece short."""


@pytest.mark.parametrize("in_place", [True, False])
def test_a_large_all_reduce_is_right_in_all_its_pieces(in_place: bool) -> None:
    sizes = (1, (4 << 20) // 8, LARGE)
    work = tuple(MeasureCollective("all_reduce", n, "float64", in_place=in_place, iterations=1) for n in sizes)
    with Session("numpy_mpi", 3, deadline=60.0) as session:
        trace = session.run(Job(3, work))
    assert trace.completed
    for rank in trace.ranks:
        for position in range(len(sizes)):
            values = rank.values(position)
            assert values["wrong"] == 0
            assert values["counts"] == {"collectives": 1}


def test_a_large_mean_with_a_handle_is_finished_when_waited_for() -> None:
    spec = TensorSpec((LARGE,), "float64")
    with Session("numpy_mpi", 2, deadline=60.0) as session:
        trace = session.run(Job(2, (AllReduce(spec, "mean", wait=False), Wait(0))))
    want = (spec.on(0) + spec.on(1)) / 2
    assert all(np.array_equal(got, want) for got in trace.values(1, "result"))
