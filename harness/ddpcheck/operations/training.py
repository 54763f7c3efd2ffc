"""A whole training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Train:
    """A whole training run by the implementation's own loop (adapter.TrainingTask) on the Job's model and data.

    Yields parameters: a mapping; losses: one for each epoch; indices: one int64 array for each epoch; learning_rates
    and best, None if the run does not report them; arguments_changed: the arrays of its task that have changed; and,
    with a folder, written: the files that this rank opened for writing there (files.watched).

    folder: a name that is valid within this Job. rank_0_only: only rank 0 uses this folder; every other rank has a
    folder of its own. slow_disk: rank 0's file system is slow (files.py).
    """

    kind: ClassVar[str] = "train"
    epochs: int = 2
    batch_size: int = 2
    shuffle: bool = True
    seed: int = 0
    max_norm: float | None = None
    micro_batches: int = 1
    schedule: Literal["constant", "linear"] = "constant"
    keep_best: bool = False
    folder: str | None = None
    resume: bool = False
    stop_after: int | None = None
    rank_0_only: bool = False
    slow_disk: bool = False
    patience: int | None = None
