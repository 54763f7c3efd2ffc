"""The trainer, a facet of implementations that own the loop: a whole training run, from the task to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ..seeded_values import Array

if TYPE_CHECKING:  # as in adapter.py
    from ..job import OptimizerSpec
    from ..models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """A whole training run, for implementations that own the loop.

    Every rank gets the whole data set (inputs and targets as in Batch) and initial values of its own; it trains on its
    share in batches of `batch_size`, the last of an epoch perhaps shorter, one optimizer step each. With `shuffle` the order
    is that of seed and epoch, without it the same in every epoch. Where the ranks' batches of a step differ in size, they weigh
    as ReplicaPromises.uneven_batches says. `max_norm` clips the synchronised gradients by their global norm, where
    ReplicaPromises.clipping is promised.

    The rest has values other than these defaults only where TrainerPromises.trainer_features promises it:

    micro_batches   accumulation: so many batches to each optimizer step. Its gradient is that of one large batch with all of
                    the window's samples. The last window of an epoch takes the rest; no window goes over its end.
    schedule        linear: the step i (from 0) of the n steps that all epochs have takes lr (n - i) / n.
    keep_best       best: tell the parameters at the end of the epoch with the lowest loss, the first of equal ones.
    folder          checkpoint: where to save at the end of every epoch all that it takes to go on. At first it is not there
                    itself, and the trainer makes it; what it lies in is. The same place for all ranks or, if
                    checkpoint_on_rank_0 is promised, perhaps empty for all others.
    resume          checkpoint: go on after the last epoch that was saved in `folder`, of a run that was cut, or that had come
                    to its end with fewer `epochs`; with nothing there begin. With exact_resume the run then ends with the
                    bits of one that was not interrupted.
    stop_after      checkpoint: end after so many of the `epochs`, as a run whose time is up.
    patience        early_stopping: end after the first epoch with which so many in a row had no lower loss, over all ranks, than
                    the lowest before them; losses and indices are those of the epochs until then. Not asked for with a folder.
    """

    model: ModelSpec
    initial: Mapping[str, Array]
    optimizer: OptimizerSpec
    inputs: Array
    targets: Array
    epochs: int
    batch_size: int
    shuffle: bool
    seed: int
    max_norm: float | None = None
    micro_batches: int = 1
    schedule: Literal["constant", "linear"] = "constant"
    keep_best: bool = False
    folder: str | None = None
    resume: bool = False
    stop_after: int | None = None
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The report of a training run on one rank, for the epochs from its start or resume.

    parameters: at the end, frozen ones included. losses: of each epoch, the mean over the samples of all ranks, equal on
    all, the model's auxiliary terms included, at least as precise as float32. indices: which samples this rank used, epoch by
    epoch, in the order of their use. learning_rates: of each optimizer step; may be left out. best: if the task has keep_best,
    those of earlier runs that it goes on from included.
    """

    parameters: Mapping[str, Array]
    losses: Sequence[float]
    indices: Sequence[Sequence[int]]
    learning_rates: Sequence[float] | None = None
    best: Mapping[str, Array] | None = None


class Train(Protocol):
    def __call__(self, task: TrainingTask) -> TrainingRun: ...
