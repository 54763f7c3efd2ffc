"""Training runs that resume correctly once, but not twice, or not after the tenth epoch."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddpcheck.seeded_values import Array

from ...data_parallel.checkpoint import NAME, Checkpoint, read, share, write
from ...data_parallel.trainer import Trainer
from ..trainers import trainer
from .resuming import RESUMED


@trainer("epochs-of-the-last-run-saved", RESUMED, cause="epochs-trained-again")
class EpochsOfTheLastRun(Trainer):
    """Checkpoints count epochs since the last resume, so a second resume repeats some."""

    before = 0

    def resume(self) -> None:
        super().resume()
        self.before = self.progress.epoch

    def checkpoint(self) -> Checkpoint:
        return replace(super().checkpoint(), epoch=self.progress.epoch - self.before)


@trainer("steps-of-the-last-run-saved", RESUMED, cause="schedule-of-last-run-only")
class StepsOfTheLastRun(Trainer):
    """Checkpoints count steps since the last resume, so the schedule is wrong after a second."""

    before = 0

    def resume(self) -> None:
        super().resume()
        self.before = self.progress.step

    def checkpoint(self) -> Checkpoint:
        return replace(super().checkpoint(), step=self.progress.step - self.before)


@trainer("best-not-passed-on", RESUMED, cause="best-forgotten-on-resume")
class BestNotPassedOn(Trainer):
    """After a resume, checkpoints lack the best weights of the earlier run."""

    own = True

    def resume(self) -> None:
        super().resume()
        self.own = self.progress.epoch == 0

    def keep_best(self, loss: float) -> None:
        self.own = self.own or loss < self.progress.lowest
        super().keep_best(loss)

    def checkpoint(self) -> Checkpoint:
        found = super().checkpoint()
        return found if self.own else replace(found, lowest=math.inf, best={})


@trainer("momentum-saved-once", RESUMED, cause="resume-loses-optimizer")
class MomentumSavedOnce(Trainer):
    """Only the first checkpoint of a run holds the optimizer's state."""

    saved = 0

    def checkpoint(self) -> Checkpoint:
        found = super().checkpoint()
        self.saved += 1
        return found if self.saved == 1 else replace(found, state={k: _without(k, v) for k, v in found.state.items()})


def _without(name: str, value: Array) -> Array:
    return np.zeros_like(value) if name.startswith("optimizer") else value


@trainer("latest-by-name", RESUMED, cause="epochs-trained-again")
class LatestByName(Trainer):
    """The latest checkpoint is chosen by name, so "9" comes after "10"."""

    def save(self) -> None:
        if self.engine.rank == 0:
            assert self.task.folder is not None
            write(Path(self.task.folder, str(self.progress.epoch)), self.checkpoint())

    def resume(self) -> None:
        assert self.task.folder is not None
        files = sorted(Path(self.task.folder).glob(f"*/{NAME}")) if self.engine.rank == 0 else []
        found = share(self.engine.collectives, read(files[-1].parent) if files else None)
        if found is not None:
            self.replica.load_state(found.state)
            self.progress = found
