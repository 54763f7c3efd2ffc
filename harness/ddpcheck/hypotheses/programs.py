"""Hypotheses from a finding's position in the Job and the operations around it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from ..causes import Cause, gradients, operations, programs, values
from ..job import (
    Backward,
    Clip,
    CloseWindow,
    Job,
    Observe,
    OpenWindow,
    Operation,
    Predict,
    Remeasure,
    Resume,
    Save,
    SetTrainable,
    Step,
    Switch,
    ZeroGrad,
)
from ..operations.data import LOUDER
from ..oracle import ExpectedArray
from .evidence import evidence_of


def nowhere(got: Sequence[Mapping[str, Any]], entries: Mapping[str, ExpectedArray]) -> Cause | None:
    """The cause if several gradients should exist, and none exists on any rank."""
    due = [name for name, entry in entries.items() if "there" in entry.presence]
    absent = len(due) > 1 and all(seen.get(name) is None for seen in got for name in due)
    return programs.NO_GRADIENTS_ANYWHERE() if absent else None


def whole_and_part(
    causes: Sequence[Cause | None],
    got: Sequence[Mapping[str, Any]],
    entries: Mapping[str, ExpectedArray],
    name: str,
    wrong: Mapping[str, Sequence[int]],
) -> list[Cause | None]:
    """Causes of this wrong gradient, considering those of other ranks and the other gradients."""
    kept = [*causes]
    shown: list[Any] = [seen.get(name) for seen in got]
    first = min(wrong[name])
    if (
        values.NOT_REDUCED.explains(filter(None, causes))
        and len(got) > 1
        and all(array is not None and np.array_equal(array, shown[first]) for array in shown)
    ):
        kept[0] = gradients.OTHER_RANKS_VALUE(rank=first)
    if values.SUMMED_NOT_AVERAGED.explains(filter(None, causes)) and any(
        other not in wrong and np.any(entry.value.exact) for other, entry in entries.items()
    ):
        kept = [*kept[1:], kept[0]]  # the other gradients are averaged
    return kept


def gone(job: Job, position: int, causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """The causes; if all gradients are missing, the operation between the last backward and this observation."""
    done = job.operations[:position]
    last = max((index for index, operation in enumerate(done) if isinstance(operation, Backward)), default=0)
    words = dict.fromkeys(filter(None, (_TAKES.get(type(operation)) for operation in done[last + 1 :])))
    if not words or not programs.NO_GRADIENTS_ANYWHERE.explains(causes):
        return causes
    return (programs.GRADIENTS_TAKEN_BY(operations=tuple(words)),)


def clipped(got: Mapping[str, Any], cause: Cause | None) -> Cause | None:
    """The cause of gradients that are all too small by one factor, if their norm is a plausible max_norm."""
    if cause is None or cause.id not in ONE_FACTOR:
        return None
    squares = [float(np.square(array, dtype=np.float64).sum()) for array in got.values() if array is not None]
    norm = math.sqrt(sum(squares))
    if not norm or not math.isfinite(norm) or not math.isclose(norm, 10.0 ** round(math.log10(norm)), rel_tol=1e-3):
        return None
    return programs.CLIPPED_UNASKED(norm=norm)


ONE_FACTOR = {values.WRONG_FACTOR.id, values.WRONG_DIVISOR.id, values.LOSS_SCALE_KEPT.id}
"""Causes that are one factor for all elements."""


def dropped(entry: ExpectedArray) -> Cause:
    """The cause of a missing gradient."""
    parts = evidence_of(entry, 0).parts
    if parts is not None and not np.any(parts.mean(axis=0)):
        return programs.USE_TOLD_BY_VALUE()
    users = tuple(each for each, part in enumerate(() if parts is None else parts) if np.any(part))
    return programs.GRADIENT_DROPPED(users=users, world_size=len(entry.presence))


def just_done(job: Job, position: int, kind: str) -> Cause | None:
    """The operations that changed a gradient after an observation that found it right."""
    looked = job.operations[position - 2] if position > 1 else None
    if not isinstance(looked, Observe) or "gradients" not in looked.what or kind != "gradients":
        return None
    done = _DISTURBS.get(type(job.operations[position - 1]))
    return programs.CHANGES_GRADIENTS(operation=done) if done else None


def ended(job: Job, position: int, causes: tuple[Cause, ...]) -> Cause | None:
    """The operations that may have ended no_sync() early, if its last backward was synchronised."""
    if not gradients.SYNCHRONISED_INSIDE_NO_SYNC.explains(causes):
        return None
    opened: list[int] = []
    for index, operation in enumerate(job.operations[:position]):
        if isinstance(operation, OpenWindow):
            opened.append(index)
        elif isinstance(operation, CloseWindow) and opened:
            opened.pop()
    done = job.operations[opened[0] + 1 if opened else 0 : position]
    last = max((index for index, operation in enumerate(done) if isinstance(operation, Backward)), default=0)
    if not opened:
        backwards = (operation for operation in reversed(done[:last]) if isinstance(operation, Backward))
        local = sum(1 for _ in takewhile(lambda backward: not backward.sync, backwards))
        return programs.WINDOW_COUNTED(count=local) if local > 1 else None
    words = dict.fromkeys(filter(None, map(_ending, done[:last])))
    return programs.WINDOW_ENDED_BY(operations=tuple(words)) if words else None


def _ending(operation: Operation) -> str:
    inner = isinstance(operation, Backward) and not operation.sync
    return _INNER if inner else _ENDS.get(type(operation), "")


_TAKES: dict[type[Operation], str] = {
    Step: "step()",
    ZeroGrad: "zero_gradients()",
    Predict: "predicting",
    Remeasure: "remeasuring",
    Save: "saving",
    Clip: "clip()",
    OpenWindow: "entering no_sync()",
    CloseWindow: "leaving no_sync()",
}
_INNER = "the end of an inner no_sync()"
_ENDS: dict[type[Operation], str] = {
    CloseWindow: _INNER,
    Backward: "a backward",
    ZeroGrad: "zero_grad()",
    Predict: "predicting",
    Save: "saving",
    Clip: "clip()",
    Switch: "the use of another replica",
}


def loudness(job: Job, kind: str) -> Cause | None:
    """Causes of a wrong gradient if one rank's is far larger, and the Job has no other special feature."""
    loud = job.data is not None and job.data.loud and kind == "gradients"
    return programs.LOUD_RANK(times=float(LOUDER)) if loud else None


def meant(causes: tuple[Cause, ...], promised: str) -> Cause | None:
    """The promise to make if lower precision is intended. promised: the dtype of reductions."""
    rounded = next((cause for cause in causes if cause.id == values.ROUNDED_AS.id), None)
    narrow = rounded.get("dtype") if rounded is not None else None
    if not isinstance(narrow, str):
        return None
    if narrow == promised:
        return programs.REDUCTION_DTYPE_IS_OF_REDUCTION()
    return programs.PROMISE_REDUCTION_DTYPE(dtype=narrow)


_DISTURBS: dict[type[Operation], str] = {
    Step: "step()",
    Predict: "predict()",
    Remeasure: "remeasure()",
    Save: "state()",
    OpenWindow: "Entering no_sync()",
    CloseWindow: "Leaving no_sync()",
    Switch: "The use of another replica",
}


_LATE = 8
"""A number of backwards that only Jobs about counters reach."""


_JUST_BEFORE = 5
"""Operations from a Resume to the first observation of parameters after a step."""


def idleness(job: Job, position: int) -> Cause | None:
    """A cause if a rank has had no samples: it may have skipped a reduction of the other ranks."""
    backwards = [operation for operation in job.operations[: position + 1] if isinstance(operation, Backward)]
    idle = {rank for backward in backwards for rank, samples in enumerate(backward.samples) if not samples}
    return operations.IDLE_RANK_SKIPS(ranks=tuple(sorted(idle))).but("possible") if idle else None


def lateness(job: Job, position: int) -> Cause | None:
    """Causes if many earlier backwards were right."""
    done = job.operations[:position]
    backwards, looks = (sum(isinstance(operation, kind) for operation in done) for kind in (Backward, Observe))
    well = programs.COUNT_ENDS(count=backwards - 1, operations="backwards")
    if any(isinstance(operation, Resume) for operation in done[-_JUST_BEFORE:]):
        well = programs.COUNT_CUT_BY_LOADING(count=backwards - 1)
    if any(isinstance(operation, SetTrainable) for operation in done[-2 * _JUST_BEFORE :]):
        well = programs.UNTIL_FROZEN(count=backwards - 1)
    if (
        isinstance(job.operations[position], Clip)
        and (clips := sum(isinstance(each, Clip) for each in done)) >= _SEVERAL
    ):
        return programs.COUNT_ENDS(count=clips, operations="clips")
    return well if min(backwards - 1, looks) >= _LATE else None


_SEVERAL = 3
"""Clips after which the first clip is no longer suspected."""


def apart(
    got: list[Mapping[str, Any]], entries: Mapping[str, ExpectedArray], wrong: Mapping[str, list[int]]
) -> Cause | None:
    """The certain facts about wrong parameters that should be equal on all ranks, and are not."""
    for name in wrong:
        shown = [np.asarray(got[rank].get(name)) for rank in entries[name].ranks]
        if entries[name].alike and not all(np.array_equal(array, shown[0]) for array in shown):
            return programs.OWN_VALUE_IN_UPDATE()
    return None
