"""Gradients are accumulated over two micro-batches in a buffer that is made once, then averaged by a non-blocking reduction."""

import numpy as np
from mpi4py import MPI

import ddpcheck.audit

MICRO, WINDOW, RATE = 4, 2, 0.2


def loss_and_gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Logistic regression: the mean loss of a batch."""
    chance = 1 / (1 + np.exp(-(x @ weights)))
    loss = -np.mean(y * np.log(chance) + (1 - y) * np.log(1 - chance))
    return float(loss), x.T @ (chance - y) / len(y)


def main() -> None:
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    rng = np.random.default_rng(11)
    x = rng.normal(size=(192, 20))
    y = (x @ rng.normal(size=20) > 0).astype(np.float64)
    own = np.array_split(np.arange(len(x)), size)[rank]

    weights = rng.normal(size=20) * 0.1
    comm.Bcast(weights, root=0)
    total = np.zeros_like(weights)
    history = np.zeros(64)

    for number in range(14):
        rows = own[(number * MICRO) % len(own) :][:MICRO]
        batch_x, batch_y = ddpcheck.audit.batch((x[rows], y[rows]))
        loss, gradient = loss_and_gradient(weights, batch_x, batch_y)
        history[number] = loss
        total += gradient
        if (number + 1) % WINDOW == 0:
            average = total / WINDOW
            comm.Iallreduce(MPI.IN_PLACE, average, op=MPI.SUM).Wait()
            average /= size
            weights -= RATE * average
            total[...] = 0
    if rank == 0:
        print("loss", history[:14].mean())


if __name__ == "__main__":
    main()
