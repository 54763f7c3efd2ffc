"""Hypotheses from the position of a wrong value in the Job and the operations around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, takewhile

from ..causes import Cause, gradients, operations, updates, values
from ..causes import programs as causes
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

_LATE = 8
"""A number of backwards that only Jobs about counters reach."""
_JUST_BEFORE = 5
"""Operations from a Resume to the first observation of parameters after a step."""
_SEVERAL = 3
"""Clips after which the first clip is no longer suspected."""

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
_DISTURBS: dict[type[Operation], str] = {
    Step: "step()",
    Predict: "predict()",
    Remeasure: "remeasure()",
    Save: "state()",
    OpenWindow: "Entering no_sync()",
    CloseWindow: "Leaving no_sync()",
    Switch: "The use of another replica",
}


@dataclass(frozen=True)
class WrongInJob:
    """A wrong value of this kind, such as "gradients", at this position of a Job.

    told: the causes found so far, from the value. reduction_dtype: the promised one.
    """

    job: Job
    position: int
    kind: str
    told: tuple[Cause, ...]
    reduction_dtype: str

    @property
    def done(self) -> tuple[Operation, ...]:
        """The operations before."""
        return self.job.operations[: self.position]

    @cached_property
    def taken_by(self) -> tuple[str, ...]:
        """If all gradients are missing, the operations between the last backward and this observation."""
        if not causes.NO_GRADIENTS_ANYWHERE.explains(self.told):
            return ()
        since = self.done[_last_backward(self.done) + 1 :]
        return tuple(dict.fromkeys(filter(None, (_TAKES.get(type(operation)) for operation in since))))

    @cached_property
    def window(self) -> tuple[Operation, ...] | None:
        """The operations since the outermost open no_sync() began; None outside no_sync()."""
        opened: list[int] = []
        for index, operation in enumerate(self.done):
            if isinstance(operation, OpenWindow):
                opened.append(index)
            elif isinstance(operation, CloseWindow) and opened:
                opened.pop()
        return self.done[opened[0] + 1 :] if opened else None

    @property
    def synchronised_inside(self) -> bool:
        return gradients.SYNCHRONISED_INSIDE_NO_SYNC.explains(self.told)

    @property
    def narrowed_to(self) -> str:
        """The dtype to which values were rounded, if one explains them."""
        rounded = next((cause for cause in self.told if cause.id == values.ROUNDED_AS.id), None)
        narrow = rounded.get("dtype") if rounded is not None else None
        return narrow if isinstance(narrow, str) else ""

    @property
    def right(self) -> int:
        """The number of backwards before the last one, which were right."""
        return self.count(Backward) - 1

    @property
    def late(self) -> bool:
        """Whether many backwards were right, and looked at."""
        return min(self.right, self.count(Observe)) >= _LATE

    def count(self, kind: type[Operation]) -> int:
        return sum(isinstance(operation, kind) for operation in self.done)


def just_done(of: WrongInJob) -> Cause | None:
    """The last operation changed a gradient: an observation before it found the gradient right."""
    looked = of.job.operations[of.position - 2] if of.position > 1 else None
    if not isinstance(looked, Observe) or "gradients" not in looked.what or of.kind != "gradients" or of.taken_by:
        return None
    done = _DISTURBS.get(type(of.job.operations[of.position - 1]))
    return causes.CHANGES_GRADIENTS(operation=done) if done else None


def state_in_few_bits(of: WrongInJob) -> Cause | None:
    """Trained values had all bits until a state was saved and loaded."""
    few = next((cause for cause in of.told if cause.id == values.FEWER_BITS.id), None)
    loads = [index for index, operation in enumerate(of.done) if isinstance(operation, Resume)]
    before = of.done[: loads[0]] if loads else ()
    trained = any(isinstance(operation, Observe) for operation in before[_last_backward(before) + 1 :])
    if few is None or not trained:
        return None
    return updates.STATE_SAVED_IN(given=str(few.get("given")), dtype=str(few.get("dtype")))


def gradients_taken(of: WrongInJob) -> tuple[Cause, ...]:
    """The causes found so far; if all gradients are missing, an operation took them."""
    return (causes.GRADIENTS_TAKEN_BY(operations=of.taken_by),) if of.taken_by else of.told


def window_counted(of: WrongInJob) -> Cause | None:
    """A number of local backwards ends the window, not the end of no_sync()."""
    if not of.synchronised_inside or of.window is not None:
        return None
    backwards = (each for each in reversed(of.done[: _last_backward(of.done)]) if isinstance(each, Backward))
    local = sum(1 for _ in takewhile(lambda backward: not backward.sync, backwards))
    return causes.WINDOW_COUNTED(count=local) if local > 1 else None


def window_ended_by(of: WrongInJob) -> Cause | None:
    """An operation inside no_sync() switched synchronisation on."""
    if not of.synchronised_inside or of.window is None:
        return None
    words = dict.fromkeys(filter(None, map(_ending, of.window[: _last_backward(of.window)])))
    return causes.WINDOW_ENDED_BY(operations=tuple(words)) if words else None


def not_reduced_after_no_sync(of: WrongInJob) -> Cause | None:
    """The first synchronised backward after one inside no_sync() is not reduced. It may fail without no_sync(), too."""
    backwards = [each for each in of.done if isinstance(each, Backward)]
    rest = [each.sync for each in dropwhile(lambda backward: backward.sync, backwards)]
    first = len(rest) > 1 and rest[-1] and not any(rest[:-1])
    not_reduced = of.kind == "gradients" and values.NOT_REDUCED.explains(of.told) and not idle_rank_not_reduced(of)
    return causes.NOT_REDUCED_AFTER_NO_SYNC().but("possible") if first and not_reduced else None


def reduced_early_after_no_sync(of: WrongInJob) -> Cause | None:
    """A synchronised backward right after one inside no_sync() is missing. It may be missing without no_sync(), too."""
    backwards = [each.sync for each in of.done if isinstance(each, Backward)]
    missing = {cause.id for cause in of.told[:1]} & {gradients.LAST_MICRO_BATCH_MISSING.id, values.ZERO.id}
    after = of.kind == "gradients" and backwards[-2:] == [False, True]
    return causes.REDUCED_EARLY_AFTER_NO_SYNC().but("possible") if after and missing else None


def loud_rank(of: WrongInJob) -> Cause | None:
    """One rank's gradients are far larger, and the Job has no other special feature."""
    loud = of.job.data is not None and of.job.data.loud and of.kind == "gradients"
    return causes.LOUD_RANK(times=float(LOUDER)) if loud else None


def promised_dtype_meant(of: WrongInJob) -> Cause | None:
    """Values were rounded to the dtype of reductions, which is promised for the reduction only."""
    same = of.narrowed_to and of.narrowed_to == of.reduction_dtype
    return causes.REDUCTION_DTYPE_IS_OF_REDUCTION() if same else None


def lower_precision_meant(of: WrongInJob) -> Cause | None:
    """Values were rounded to a dtype that is promised nowhere."""
    other = of.narrowed_to and of.narrowed_to != of.reduction_dtype
    return causes.PROMISE_REDUCTION_DTYPE(dtype=of.narrowed_to) if other else None


def clips_counted(of: WrongInJob) -> Cause | None:
    """The first clips were right."""
    clips = of.count(Clip) if isinstance(of.job.operations[of.position], Clip) else 0
    return causes.COUNT_ENDS(count=clips, operations="clips") if clips >= _SEVERAL else None


def right_until_frozen(of: WrongInJob) -> Cause | None:
    """Layers were frozen or unfrozen just before the first wrong value."""
    frozen = any(isinstance(operation, SetTrainable) for operation in of.done[-2 * _JUST_BEFORE :])
    return causes.UNTIL_FROZEN(count=of.right) if frozen and of.late else None


def count_cut_by_loading(of: WrongInJob) -> Cause | None:
    """A state was loaded just before the first wrong value."""
    loaded = any(isinstance(operation, Resume) for operation in of.done[-_JUST_BEFORE:])
    return causes.COUNT_CUT_BY_LOADING(count=of.right) if loaded and of.late else None


def backwards_counted(of: WrongInJob) -> Cause | None:
    """A counter of backwards ends or wraps."""
    return causes.COUNT_ENDS(count=of.right, operations="backwards") if of.late else None


def idle_rank_not_reduced(of: WrongInJob) -> Cause | None:
    """A rank had no samples in the backward that should have reduced this gradient."""
    if of.kind != "gradients" or not values.NOT_REDUCED.explains(of.told):
        return None
    synchronised = [each for each in of.done if isinstance(each, Backward) and each.sync]
    return _skipped_by_idle(synchronised[-1:])


def idle_rank_skips(of: WrongInJob) -> Cause | None:
    """A rank had no samples: it may have skipped a reduction of the other ranks."""
    done = of.job.operations[: of.position + 1]
    return _skipped_by_idle([operation for operation in done if isinstance(operation, Backward)])


def _skipped_by_idle(backwards: Sequence[Backward]) -> Cause | None:
    idle = {rank for backward in backwards for rank, samples in enumerate(backward.samples) if not samples}
    return operations.IDLE_RANK_SKIPS(ranks=tuple(sorted(idle))).but("possible") if idle else None


def _last_backward(done: Sequence[Operation]) -> int:
    """Its position; 0 if there is none."""
    return max((index for index, operation in enumerate(done) if isinstance(operation, Backward)), default=0)


def _ending(operation: Operation) -> str:
    inner = isinstance(operation, Backward) and not operation.sync
    return _INNER if inner else _ENDS.get(type(operation), "")
