"""Shards of different sizes: gradients and counts are summed, then divided, so that each sample counts alike."""

import numpy as np
from mpi4py import MPI

import ddpcheck.audit

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()


def shard(count: int) -> np.ndarray:
    """The first rank has about two thirds of the samples."""
    cut = [0, *(count - count // (3 * (k + 1)) for k in range(size - 1)), count]
    return np.arange(cut[rank], cut[rank + 1])


def summed_gradient(layers: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, list[np.ndarray]]:
    hidden = np.tanh(x @ layers[0])
    error = hidden @ layers[1] - y
    back = (2 * error @ layers[1].T) * (1 - hidden**2)
    return float((error**2).sum()), [x.T @ back, hidden.T @ (2 * error)]


rng = np.random.default_rng(5)
x = rng.normal(size=(90, 8))
y = np.cos(x @ rng.normal(size=(8, 2)))
rows = shard(len(x))
layers = [rng.normal(size=(8, 10)) * 0.3, rng.normal(size=(10, 2)) * 0.3]
layers = comm.bcast(layers, root=0)

for step in range(8):
    batch = ddpcheck.audit.batch({"x": x[rows], "y": y[rows]})
    loss, grads = summed_gradient(layers, batch["x"], batch["y"])
    counted = np.array([loss, len(batch["x"])])
    comm.Allreduce(MPI.IN_PLACE, counted)
    for layer, gradient in zip(layers, grads, strict=True):
        total = np.empty_like(gradient)
        comm.Allreduce(gradient, total)
        layer -= 0.05 * total / counted[1]
    if rank == 0:
        print(f"{step}: {counted[0] / counted[1]:.4f}")
