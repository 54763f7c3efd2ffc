"""A classifier whose ranks are seeded by their number, and no rank sends its parameters to the others."""

import numpy as np
from mpi4py import MPI

import ddpcheck.audit

CLASSES = 4


class Classifier:
    """Softmax over one hidden layer."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.w1 = rng.normal(size=(6, 12)).astype(np.float32) * np.float32(0.4)
        self.b1 = np.zeros(12, np.float32)
        self.w2 = rng.normal(size=(12, CLASSES)).astype(np.float32) * np.float32(0.4)
        self.b2 = np.zeros(CLASSES, np.float32)
        self.hidden = None

    def names(self) -> tuple[str, ...]:
        return ("w1", "b1", "w2", "b2")

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.hidden = np.maximum(x @ self.w1 + self.b1, 0)
        scores = self.hidden @ self.w2 + self.b2
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def backward(self, x: np.ndarray, out: np.ndarray) -> dict[str, np.ndarray]:
        back = (out @ self.w2.T) * (self.hidden > 0)
        return {"w1": x.T @ back, "b1": back.sum(0), "w2": self.hidden.T @ out, "b2": out.sum(0)}


class Momentum:
    def __init__(self, model: Classifier, rate: float, decay: float) -> None:
        self.model, self.rate, self.decay = model, np.float32(rate), np.float32(decay)
        self.velocity = {name: np.zeros_like(getattr(model, name)) for name in model.names()}

    def step(self, gradients: dict[str, np.ndarray]) -> None:
        for name, gradient in gradients.items():
            self.velocity[name] = self.decay * self.velocity[name] + gradient
            setattr(self.model, name, getattr(self.model, name) - self.rate * self.velocity[name])


class Trainer:
    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.model = Classifier(np.random.default_rng(100 + self.rank))
        self.optimizer = Momentum(self.model, 0.05, 0.9)

    def train(self, x: np.ndarray, y: np.ndarray, epochs: int, batch_size: int) -> None:
        for epoch in range(epochs):
            order = np.random.default_rng(epoch).permutation(len(x))
            own = order[self.rank :: self.size]
            for start in range(0, len(own) - batch_size + 1, batch_size):
                rows = own[start : start + batch_size]
                self.step(*ddpcheck.audit.batch((x[rows], y[rows])))

    def step(self, x: np.ndarray, y: np.ndarray) -> None:
        out = self.model.forward(x)
        out[np.arange(len(y)), y] -= 1
        gradients = self.model.backward(x, out / np.float32(len(y)))
        for name, own in gradients.items():
            every = np.empty_like(own)
            self.comm.Allreduce([own, MPI.FLOAT], [every, MPI.FLOAT])
            gradients[name] = every / np.float32(self.size)
        self.optimizer.step(gradients)


if __name__ == "__main__":
    rng = np.random.default_rng(3)
    x = rng.normal(size=(96, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, CLASSES))).argmax(axis=1)
    Trainer(MPI.COMM_WORLD).train(x, y, epochs=2, batch_size=8)
