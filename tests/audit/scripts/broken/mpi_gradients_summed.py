"""An MLP in NumPy whose flat gradients are summed over the ranks, with no division after it."""

import numpy as np
from mpi4py import MPI

import ddpcheck.audit

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
STEPS, BATCH, RATE = 8, 8, 0.1


def make_data(count: int = 256) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(count, 10))
    return x, np.sin(x @ rng.normal(size=(10, 3)))


def make_parameters(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "w1": rng.normal(size=(10, 16)) * 0.3,
        "b1": np.zeros(16),
        "w2": rng.normal(size=(16, 3)) * 0.3,
        "b2": np.zeros(3),
    }


def gradients(p: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    hidden = np.tanh(x @ p["w1"] + p["b1"])
    error = hidden @ p["w2"] + p["b2"] - y
    loss = float((error**2).sum() / len(x))
    out = 2 * error / len(x)
    back = (out @ p["w2"].T) * (1 - hidden**2)
    return loss, {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ out, "b2": out.sum(0)}


def averaged(grads: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    flat = np.concatenate([each.ravel() for each in grads.values()])
    comm.Allreduce(MPI.IN_PLACE, flat, op=MPI.SUM)
    made, start = {}, 0
    for name, each in grads.items():
        made[name] = flat[start : start + each.size].reshape(each.shape)
        start += each.size
    return made


def main() -> None:
    x, y = make_data()
    x, y = x[rank::size], y[rank::size]
    parameters = make_parameters(seed=rank)
    for each in parameters.values():
        comm.Bcast(each, root=0)
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        batch = ddpcheck.audit.batch((x[part], y[part]))
        loss, grads = gradients(parameters, *batch)
        for name, each in averaged(grads).items():
            parameters[name] -= RATE * each
        mean = comm.allreduce(loss) / size
        if rank == 0:
            print(f"step {step}: loss {mean:.4f}")


if __name__ == "__main__":
    main()
