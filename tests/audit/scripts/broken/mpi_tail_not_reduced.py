"""One flat vector of parameters, reduced in whole chunks: what is left over at the end is forgotten."""

import numpy as np
from mpi4py import MPI

import ddpcheck.audit

CHUNK = 64


class Adam:
    def __init__(self, count: int, rate: float) -> None:
        self.rate, self.t = rate, 0
        self.m, self.v = np.zeros(count), np.zeros(count)

    def step(self, parameters: np.ndarray, gradient: np.ndarray) -> None:
        self.t += 1
        self.m += 0.1 * (gradient - self.m)
        self.v += 0.001 * (gradient**2 - self.v)
        mean, square = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        parameters -= self.rate * mean / (np.sqrt(square) + 1e-8)


def views(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return flat[:100].reshape(10, 10), flat[100:110], flat[110:140].reshape(10, 3)


def gradient_of(flat: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    w1, b1, w2 = views(flat)
    hidden = np.tanh(x @ w1 + b1)
    out = 2 * (hidden @ w2 - y) / len(x)
    back = (out @ w2.T) * (1 - hidden**2)
    return np.concatenate([(x.T @ back).ravel(), back.sum(0), (hidden.T @ out).ravel()])


def all_reduce_mean(comm: MPI.Comm, values: np.ndarray) -> None:
    for start in range(0, values.size - CHUNK + 1, CHUNK):
        comm.Allreduce(MPI.IN_PLACE, values[start : start + CHUNK], op=MPI.SUM)
    values /= comm.Get_size()


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    rng = np.random.default_rng(1)
    x = rng.normal(size=(128, 10))
    y = np.tanh(x @ rng.normal(size=(10, 3)))
    parameters = rng.normal(size=140) * 0.3
    comm.Bcast([parameters, MPI.DOUBLE], root=0)
    optimizer = Adam(parameters.size, rate=0.002 * size)
    for step in range(8):
        rows = np.arange(rank, len(x), size)[step * 8 : step * 8 + 8]
        xb, yb = ddpcheck.audit.batch([x[rows], y[rows]])
        gradient = gradient_of(parameters, xb, yb)
        all_reduce_mean(comm, gradient)
        optimizer.step(parameters, gradient)
        comm.Barrier()


if __name__ == "__main__":
    main()
