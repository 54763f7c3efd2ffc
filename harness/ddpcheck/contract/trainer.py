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

    Every rank gets the whole data set (inputs and targets as in Batch) and its own initial values. It trains on its share in
    batches of `batch_size`, one optimizer step each; the last batch of an epoch may be shorter. With `shuffle` the order depends
    on seed and epoch; without it the order is the same in every epoch. If the ranks' batches of a step differ in size, they
    weigh as ReplicaPromises.uneven_batches says. `max_norm` clips the synchronised gradients by their global norm, if
    ReplicaMethod.CLIPPING is promised.

    The other fields differ from their defaults only if TrainerPromises.trainer_features promises the feature:

    micro_batches   accumulation: the number of batches in each optimizer step. The step's gradient is that of one large batch
                    with all samples of the window. The last window of an epoch may be shorter; no window crosses epochs.
    schedule        linear: step i (from 0) of all n steps of the run uses lr (n - i) / n.
    keep_best       best: report the parameters at the end of the epoch with the lowest loss, the first if several are equal.
    folder          checkpoint: the folder in which to save, after every epoch, everything needed to resume. The trainer creates
                    it; its parent exists. It is the same for all ranks; with checkpoint_on_rank_0 other ranks may find it empty.
    resume          checkpoint: continue after the last epoch saved in `folder`, by a run that was interrupted or that finished
                    with fewer `epochs`; start from the beginning if nothing is saved. With exact_resume the run ends with the
                    bits of an uninterrupted run.
    stop_after      checkpoint: end after this many of the `epochs`, as if interrupted.
    patience        early_stopping: end after this many consecutive epochs without a new lowest loss over all ranks; losses and
                    indices cover the epochs until then. Not used together with a folder.
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

    parameters: the final values, including frozen ones. losses: for each epoch, the mean over the samples of all ranks,
    including the model's auxiliary terms, equal on all ranks, at least as precise as float32. indices: the samples that this
    rank used, epoch by epoch, in order. learning_rates: of each optimizer step; may be left out. best: the best parameters, if
    the task has keep_best; epochs before a resume count too.
    """

    parameters: Mapping[str, Array]
    losses: Sequence[float]
    indices: Sequence[Sequence[int]]
    learning_rates: Sequence[float] | None = None
    best: Mapping[str, Array] | None = None


class Train(Protocol):
    def __call__(self, task: TrainingTask) -> TrainingRun: ...
