"""A communicator over mpi4py: `ddpcheck check over_mpi.py:adapter`, with MPICH or Open MPI."""

import numpy as np

from ddpcheck import Adapter, Capabilities, CollectivePromises, Facets, Mpiexec


class Communicator:
    """FILL IN: your own collectives."""

    def __init__(self, mpi):
        self.mpi = mpi

    def all_reduce(self, array, op="sum", *, group=None):
        total = np.empty(array.shape, array.dtype)
        self.mpi.Allreduce(np.ascontiguousarray(array), total)
        return total


def connect(context):
    from mpi4py import MPI  # starts MPI, so only the ranks import it

    mpi = MPI.COMM_WORLD
    return Facets(rank=mpi.Get_rank(), world_size=mpi.Get_size(), collectives=Communicator(mpi))


promises = CollectivePromises(operations={"all_reduce"}, reductions={"sum"})
adapter = Adapter("over_mpi", connect, Capabilities(collectives=promises), Mpiexec(), requires=("mpi4py",))
