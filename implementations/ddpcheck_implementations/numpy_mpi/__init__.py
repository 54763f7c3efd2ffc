"""Data-parallel training with NumPy and the collectives of MPI, through mpi4py.

mpirun -n 4 python -m ddpcheck.training numpy_mpi        four ranks
python -m ddpcheck.training numpy_mpi                    the same program as a single process
"""

from __future__ import annotations

from ddpcheck.contract import Determinism, Traffic
from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.mpi import Mpiexec

from ..data_parallel import PROMISES, EngineSettings, numpy_facets


def connect(context: RankContext) -> Facets:
    """Return the facets over MPI.COMM_WORLD, whose rank and world size the harness compares with the launcher's."""
    del context
    from mpi4py import MPI

    from .communicator import MpiCommunicator

    comm = MpiCommunicator(MPI.COMM_WORLD)
    # overlap needs a second thread that calls MPI
    settings = EngineSettings(overlap="auto" if MPI.Query_thread() >= MPI.THREAD_SERIALIZED else "off")
    return numpy_facets(comm, comm.rank, comm.world_size, comm.close, settings=settings, counts=comm.counts)


adapter = Adapter(
    "numpy_mpi",
    connect,
    PROMISES.but(
        shares_host=True,
        subgroups=True,
        asynchronous=True,
        in_place=True,
        keeps_tiny_values=True,
        any_layout=True,
        writable_results=True,
        determinism=Determinism.BETWEEN_RUNS,
        traffic=Traffic.ONCE,
    ),
    launcher=Mpiexec(),
    requires=("mpi4py",),
    description="NumPy network, gradients averaged over MPI",
)
