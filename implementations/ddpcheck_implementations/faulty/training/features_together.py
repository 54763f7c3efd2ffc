"""Training runs that are wrong where two features meet: a checkpoint and clipping, the best weights and micro-batches, a
schedule and weight decay, ids and a loop for numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ddpcheck.contract.names import ALL_TRAINER_FEATURES
from ddpcheck.contract.trainer import TrainingRun, TrainingTask
from ddpcheck.seeded_values import Array

from ...data_parallel.checkpoint import Checkpoint
from ...data_parallel.trainer import Engine, Trainer, Window
from ..trainers import trainer
from .epoch_boundaries import ENDS
from .resuming import BEST, RESUMED

ACCUMULATED = "check_training_run_with_accumulation_matches_one_process"
EARLY = "check_early_stopping_ends_all_ranks_together"


@trainer("not-clipped-after-resume", RESUMED, cause="resume-loses-clipping", world_size=1)
class NotClippedAfterResume(Trainer):
    """The largest norm is an option of a run that begins."""

    def resume(self) -> None:
        super().resume()
        if self.progress.epoch:
            self.task = replace(self.task, max_norm=None)


@trainer("best-not-with-micro-batches", BEST, cause="best-not-copied", world_size=1)
class BestNotWithMicroBatches(Trainer):
    """The loop that accumulates is another one, and does not look for the best weights."""

    def keep_best(self, loss: float) -> None:
        if self.task.micro_batches == 1:
            super().keep_best(loss)


@trainer(
    "weight-decay-not-scheduled",
    "check_training_run_applies_its_learning_rate_schedule",
    cause="decay-at-first-rate",
    world_size=1,
)
class DecayNotScheduled(Trainer):
    """Weight decay is applied by itself, at the learning rate that the run began with."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, optimizer=replace(task.optimizer, weight_decay=0.0)))
        self.decay = task.optimizer.lr * task.optimizer.weight_decay

    def update(self, window: Window) -> float:
        before = self.replica.parameters()
        loss = super().update(window)
        network = self.replica._network
        for name in network.learned:
            network.parameters[name] -= np.asarray(self.decay * before[name], before[name].dtype)
        return loss


@trainer("frozen-layers-not-saved", RESUMED, cause="frozen-layer-trained")
class FrozenNotSaved(Trainer):
    """The checkpoint holds what learns; for the rest every rank has its own initial values."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, task)
        self.initial: Mapping[str, Array] = {name: np.array(array) for name, array in task.initial.items()}

    def resume(self) -> None:
        super().resume()
        network = self.replica._network
        for name in network.parameters.keys() - set(network.learned) if self.progress.epoch else ():
            network.parameters[name][...] = self.initial[name]


@trainer("ids-as-floats", ENDS, cause="rank-raised", world_size=1)
class IdsAsFloats(Trainer):
    """Data are numbers of the model's dtype."""

    def __init__(self, engine: Engine, task: TrainingTask) -> None:
        super().__init__(engine, replace(task, inputs=task.inputs.astype(task.model.dtype)))


@trainer(
    "frozen-layers-accumulate-by-sums",
    ACCUMULATED,
    cause="micro-batches-summed",
    world_size=1,
)
class FrozenAccumulateBySums(Trainer):
    """The loop that fine-tunes, with layers that do not learn, adds up the gradients of micro-batches."""

    def weight(self, rows: Sequence[int], window: Window) -> float:
        return 1.0 if "frozen" in self.task.model.features() else super().weight(rows, window)


@trainer(
    "losses-of-labels-by-full-batches",
    "check_training_run_reports_loss_over_all_samples",
    cause="epoch-loss-short-as-full",
    world_size=1,
)
class LabelsByFullBatches(Trainer):
    """The loss of a batch of labels is multiplied by the size that batches have, and not by its own."""

    def summed(self, losses: Sequence[float], window: Window) -> float:
        if self.task.model.loss == "cross_entropy":
            return sum(losses) * self.task.batch_size
        return super().summed(losses, window)


@trainer(
    "never-early-with-micro-batches",
    EARLY,
    cause="stops-by-other-loss",
    world_size=1,
    trainer_features=ALL_TRAINER_FEATURES,
)
class NeverEarlyWithMicroBatches(Trainer):
    """The loop that accumulates is another one, and does not look whether to end."""

    def enough(self, losses: Sequence[float]) -> bool:
        return self.task.micro_batches == 1 and super().enough(losses)


@trainer(
    "ends-early-with-the-best-weights",
    EARLY,
    cause="ends-with-epoch",
    trainer_features=ALL_TRAINER_FEATURES,
)
class EndsEarlyWithTheBest(Trainer):
    """A run that ends early ends with the weights of its best epoch, though the task asks for the last ones."""

    lowest: tuple[float, Mapping[str, Array]] = math.inf, {}

    def keep_best(self, loss: float) -> None:
        if loss < self.lowest[0]:
            self.lowest = loss, self.replica.parameters()
        super().keep_best(loss)

    def run(self) -> TrainingRun:
        run = super().run()
        early = self.task.patience is not None and not self.task.keep_best and len(run.losses) < self.task.epochs
        return replace(run, parameters=self.lowest[1]) if early else run


@trainer("saved-until-resumed-with-micro-batches", RESUMED, cause="epochs-trained-again", world_size=1)
class SavedUntilResumed(Trainer):
    """The loop that accumulates, once resumed, saves no more."""

    def save(self) -> None:
        if self.task.micro_batches == 1 or not self.task.resume:
            super().save()


@trainer(
    "best-forgotten-with-micro-batches",
    RESUMED,
    cause="best-forgotten-on-resume",
    world_size=1,
)
class BestForgotten(Trainer):
    """Where micro-batches accumulate the checkpoint has no best weights."""

    def checkpoint(self) -> Checkpoint:
        made = super().checkpoint()
        return made if self.task.micro_batches == 1 else replace(made, best={}, lowest=math.inf)


@trainer("saved-an-epoch-late", RESUMED, cause="last-epoch-not-saved", world_size=1)
class SavedLate(Trainer):
    """A copy of the state is made while the next epoch runs, and written at its end, with that epoch's number."""

    before: Mapping[str, Array] | None = None

    def checkpoint(self) -> Checkpoint:
        made = super().checkpoint()
        state, self.before = self.before or made.state, made.state
        return replace(made, state=state)


@trainer(
    "every-third-update-is-left-out",
    ENDS,
    cause="parameters-not-stepped",
    world_size=1,
)
class EveryThirdUpdate(Trainer):
    """A scaler's retry counts wrongly, and every third step is none."""

    def step(self) -> None:
        before = self.replica.state()
        super().step()
        if not self.progress.step % 3:
            self.replica.load_state(before)


@trainer("short-batches-are-summed", ENDS, cause="gradients-summed-over-ranks")
class ShortBatchesSummed(Trainer):
    """A batch that is not full takes another way, on which gradients are summed over the ranks."""

    def backward(self, rows: Sequence[int], weight: float) -> float:
        short = len(rows) < self.task.batch_size
        return super().backward(rows, weight * self.engine.world_size if short else weight)
