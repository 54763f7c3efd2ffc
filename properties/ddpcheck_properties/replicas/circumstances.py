"""What a finding's place in the Job, and what is beside it, say of its cause: more than the wrong array alone can."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from ddpcheck.job import (
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
from ddpcheck.operations.data import LOUDER
from ddpcheck.oracle import Entry

_NOWHERE = (
    "no parameter has a gradient on any rank: those that learn are not the ones that were handed over (a copy of the module, "
    "say), or backward does not reach them"
)


def nowhere(got: Sequence[Mapping[str, Any]], entries: Mapping[str, Entry]) -> str:
    """What it says if several gradients should be there, and all are none everywhere."""
    due = [name for name, entry in entries.items() if "there" in entry.presence]
    return _NOWHERE if len(due) > 1 and all(seen.get(name) is None for seen in got for name in due) else ""


def gone(job: Job, position: int, cause: str) -> str:
    """The cause, or where all gradients are gone what came between the last backward and this look."""
    done = job.operations[:position]
    last = max((index for index, operation in enumerate(done) if isinstance(operation, Backward)), default=0)
    words = dict.fromkeys(filter(None, (_TAKES.get(type(operation)) for operation in done[last + 1 :])))
    if not words or not cause.startswith(_NOWHERE):
        return cause
    return f"{', '.join(words)} came between the last backward and this look: that takes gradients away"


def clipped(got: Mapping[str, Any], cause: str) -> str:
    """What it says of gradients that are all too small by one factor if they have a norm that somebody would choose."""
    if not cause.startswith(ONE_FACTOR):
        return ""
    squares = [float(np.square(array, dtype=np.float64).sum()) for array in got.values() if array is not None]
    norm = math.sqrt(sum(squares))
    if not norm or not math.isfinite(norm) or not math.isclose(norm, 10.0 ** round(math.log10(norm)), rel_tol=1e-3):
        return ""
    return f"all gradients together have the norm {norm:.4g} here: they are clipped to it, though nobody asked"


ONE_FACTOR = "every element is"
"""How a diagnosis begins on a factor that means nothing by itself."""


def dropped(entry: Entry) -> str:
    """Why a gradient that should be there is none."""
    parts = entry.evidence(0).parts
    if parts is not None and not np.any(parts.mean(axis=0)):
        return f"the mean over all ranks is zero here, which is not none: {_BY_VALUE}"
    users = [str(each) for each, part in enumerate(() if parts is None else parts) if np.any(part)]
    few = f": only rank {', '.join(users)} of {len(entry.presence)} used it" * (0 < len(users) < len(entry.presence))
    return f"the gradient was dropped, or never reached this rank{few}"


_BY_VALUE = "whether a parameter was used is told by its gradient's value, or by another rank"


def just_done(job: Job, position: int, headline: str) -> str:
    """What changed a gradient between two looks, of which the first found it right."""
    looked = job.operations[position - 2] if position > 1 else None
    if not isinstance(looked, Observe) or "gradients" not in looked.what or not headline.startswith("gradient"):
        return ""
    return _DISTURBS.get(type(job.operations[position - 1]), "")


def ended(job: Job, position: int, cause: str) -> str:
    """What may have ended a no_sync() in which the last backward was synchronised."""
    if "though inside no_sync" not in cause:
        return ""
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
        return f"the {local} before it in a row were local: micro-batches are counted" * (local > 1)
    words = dict.fromkeys(filter(None, map(_ending, done[:last])))
    return f"it has ended by what came since it began: {', '.join(words)}" * bool(words)


def _ending(operation: Operation) -> str:
    inner = isinstance(operation, Backward) and not operation.sync
    return _INNER if inner else _ENDS.get(type(operation), "")


_TAKES: dict[type[Operation], str] = {
    Step: "step()",
    ZeroGrad: "zero_gradients(), which is to leave zeros,",
    Predict: "predicting",
    Remeasure: "remeasuring",
    Save: "saving",
    Clip: "clip()",
    OpenWindow: "entering no_sync()",
    CloseWindow: "leaving no_sync()",
}
_INNER = "the end of a no_sync() within it"
_ENDS: dict[type[Operation], str] = {
    CloseWindow: _INNER,
    Backward: "a backward",
    ZeroGrad: "zero_grad()",
    Predict: "predicting",
    Save: "saving",
    Clip: "clip()",
    Switch: "what was done with the other replica",
}


def loudness(job: Job, headline: str) -> str:
    """What it says of a gradient if one rank's is far larger than the others', as nothing else is special about the Job."""
    loud = job.data is not None and job.data.loud and headline.startswith("gradient")
    return (
        f"one rank's gradients are about {LOUDER:.0f} x larger than the others' here: what is small, or large, beside the "
        "others' is left out"
    ) * bool(loud)


def meant(cause: str, promised: str) -> str:
    """What to promise if fewer bits are no accident. promised: the dtype of reductions."""
    narrow = next((name for name in ("bfloat16", "float16") if f"as in {name}" in cause), "")
    if narrow == promised:
        return "the promised reduction_dtype is that of a reduction: what a rank adds up by itself keeps the model's"
    return f'if gradients are compressed on purpose, promise reduction_dtype="{narrow}"' if narrow else ""


_DISTURBS: dict[type[Operation], str] = {
    Step: "step() changes it: weight decay or momentum is added in place, say",
    Predict: "predicting changes it",
    Remeasure: "remeasuring changes it",
    Save: "saving changes it",
    OpenWindow: "entering no_sync() changes it",
    CloseWindow: "leaving no_sync() changes it",
    Switch: "what was done with the other replica changes it",
}


_LATE = 8
"""Backwards: more than any Job has by chance."""


_JUST_BEFORE = 5
"""Operations from a Resume to the first look at what a step has made of it."""


def lateness(job: Job, position: int) -> str:
    """What it says if many backwards were looked at before, and went well."""
    done = job.operations[:position]
    backwards, looks = (sum(isinstance(operation, kind) for operation in done) for kind in (Backward, Observe))
    well = (
        f"the first {backwards - 1} backwards went well: a count of calls may end or come round (a warm-up, a period)"
    )
    if any(isinstance(operation, Resume) for operation in done[-_JUST_BEFORE:]):
        well = f"the first {backwards - 1} backwards went well: saving or loading cuts a count, or leaves something out"
    if any(isinstance(operation, SetTrainable) for operation in done[-2 * _JUST_BEFORE :]):
        well = f"the first {backwards - 1} backwards went well, until layers were frozen or unfrozen"
    if (
        isinstance(job.operations[position], Clip)
        and (clips := sum(isinstance(each, Clip) for each in done)) >= _SEVERAL
    ):
        return f"the {clips} clips before went well: a backward that is not reduced now and then (a period) shows here, too"
    return well if min(backwards - 1, looks) >= _LATE else ""


_SEVERAL = 3
"""Clips: what is wrong with every one shows in the first."""
