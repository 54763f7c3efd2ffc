"""numpy_mpi's own work around MPI: large all-reduces in pieces, and traffic counts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ddpcheck import Job, Session
from ddpcheck.job import AllReduce, TensorSpec, Wait
from ddpcheck.launchers.mpi import find_mpi
from ddpcheck.operations.timing import MeasureCollective

pytest.importorskip("mpi4py", reason="pip install ddpcheck[mpi]")
pytestmark = pytest.mark.skipif(find_mpi() is None, reason="no mpiexec: pip install mpich")

LARGE = (9 << 20) // 8 + 3
"""float64 elements of a message in several pieces, the last of them short."""


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


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_large_in_place_mean_uses_a_ring(world_size: int) -> None:
    """Chunks of unequal sizes, and a last piece with fewer elements than ranks."""
    short = 2 * (2 << 20) // 8 + (4 << 20) // 8 + 1
    specs = [TensorSpec((size,), "float64", seed=seed) for seed, size in enumerate((LARGE, short))]
    with Session("numpy_mpi", world_size, deadline=60.0) as session:
        trace = session.run(Job(world_size, tuple(AllReduce(spec, "mean", in_place=True) for spec in specs)))
    for position, spec in enumerate(specs):
        want = sum(spec.on(rank) for rank in range(world_size)) / world_size
        assert all(np.array_equal(got, want) for got in trace.values(position, "result"))


STRIDED = """
import numpy as np
from mpi4py import MPI
from ddpcheck_implementations.numpy_mpi.communicator import PIECE_BYTES, MpiCommunicator

comm = MpiCommunicator(MPI.COMM_WORLD)
for array in (np.ones((9, PIECE_BYTES // 4), "float32").T, np.ones((PIECE_BYTES, 2), "float32")[:, 0]):
    comm.all_reduce_in_place(array)
    assert (array == comm.world_size).all()
comm.close()
"""


def test_a_large_array_that_has_no_flat_view_is_reduced_in_place() -> None:
    """Its pieces would be pieces of a copy, so the result is written back."""
    launcher = find_mpi()
    assert launcher is not None
    command = [*launcher.command(2), sys.executable, "-c", STRIDED]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
