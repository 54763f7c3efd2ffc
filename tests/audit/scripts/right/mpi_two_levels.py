"""Gradients are summed within a node and then between nodes, through communicators that the script splits off."""

import numpy as np
from mpi4py import MPI

import ddpcheck.audit

PER_NODE = 2


class Levels:
    """Ranks of one node, and the first ranks of all nodes."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.node = comm.Split(color=comm.rank // PER_NODE, key=comm.rank)
        self.leaders = comm.Split(color=0 if self.node.rank == 0 else MPI.UNDEFINED, key=comm.rank)

    def mean(self, values: np.ndarray) -> np.ndarray:
        total = np.empty_like(values)
        self.node.Reduce(values, total, op=MPI.SUM, root=0)
        if self.node.rank == 0:
            self.leaders.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
        self.node.Bcast(total, root=0)
        return total / self.comm.size


def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 2 * x.T @ (x @ weights - y) / len(x)


def main() -> None:
    comm = MPI.COMM_WORLD
    levels = Levels(comm)
    rng = np.random.default_rng(9)
    x = rng.normal(size=(256, 16))
    y = x @ rng.normal(size=(16, 4))
    weights = comm.bcast(rng.normal(size=(16, 4)) if comm.rank == 0 else None)
    for step in range(7):
        rows = np.arange(comm.rank, len(x), comm.size)[step * 4 : step * 4 + 4]
        xb, yb = ddpcheck.audit.batch((x[rows], y[rows]))
        weights = weights - 0.01 * levels.mean(gradient(weights, xb, yb))


if __name__ == "__main__":
    main()
