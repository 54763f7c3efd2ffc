"""Training runs that shuffle with a random state of each rank, which checkpoints must include."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddpcheck.contract.trainer import TrainingTask
from ddpcheck.seeded_values import Array

from ...data_parallel.checkpoint import Checkpoint, read, share
from ...data_parallel.trainer import Engine, Trainer
from ..trainers import trainer
from .resuming import RESUMED


class ShufflesByState(Trainer):
    """Correct: each rank shuffles with its own generator, and rank 0 saves the states of all."""

    states = np.zeros((0, 2), np.int64)

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        self.stream, self.drawn = engine.rank, 0

    def order(self, epoch: int) -> Sequence[int]:
        self.sampler.set_epoch(0)
        mine = list(self.sampler)
        if not self.task.shuffle:
            return mine
        places = np.random.default_rng((self.task.seed, self.stream, self.drawn)).permutation(len(mine))
        self.drawn += 1
        return [mine[place] for place in places.tolist()]

    def save(self) -> None:
        own = np.array([self.stream, self.drawn], np.int64)
        self.states = np.asarray(self.engine.collectives.all_gather(own))
        super().save()

    def checkpoint(self) -> Checkpoint:
        exact = super().checkpoint()
        return replace(exact, state={**exact.state, "states": self.states})

    def resume(self) -> None:
        assert self.task.folder is not None
        found = share(self.engine.collectives, read(Path(self.task.folder)) if self.engine.rank == 0 else None)
        if found is not None:
            states = found.state["states"]
            kept = {name: array for name, array in found.state.items() if name != "states"}
            self.replica.load_state(kept)
            self.progress = replace(found, state=kept)
            self.restore(states)

    def restore(self, states: Array) -> None:
        self.stream, self.drawn = states[self.engine.rank].tolist()


shuffles_by_state = trainer("shuffles-by-states-of-its-own")(ShufflesByState)


@trainer("random-state-of-rank-0-restored", RESUMED, cause="random-state-of-rank-0")
class OfRankZero(ShufflesByState):
    """A resumed run gives every rank the random state of rank 0."""

    def restore(self, states: Array) -> None:
        self.stream, self.drawn = states[0].tolist()


@trainer("seeded-again-after-the-restore", RESUMED, cause="epochs-from-zero")
class SeededAgain(ShufflesByState):
    """A resumed run reseeds its generators after restoring their state."""

    def restore(self, states: Array) -> None:
        super().restore(states)
        self.stream, self.drawn = self.engine.rank, 0


@trainer("random-state-not-restored", RESUMED, cause="order-not-by-seed-and-epoch")
class NotRestored(ShufflesByState):
    """A resumed run seeds its generators from the system's entropy."""

    def restore(self, states: Array) -> None:
        self.drawn = int(np.random.default_rng().integers(10, 1 << 30))
