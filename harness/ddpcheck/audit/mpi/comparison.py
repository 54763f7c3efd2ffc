"""Compares the changes of the replica in each step, in the real run and in the mirrors. The results are plain
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...seeded_values import Array
from .. import gradient_weights
from ..evidence import Evidence, RunSeen, StepSeen
from ..incomparable_steps import ended_before, misfit
from ..request import Request, ScriptRun
from .marked_batches import REPLICA
from .marked_batches import read as kept_as

Arrays = dict[str, Array]
_CLOSE = 1e-3
_RATE = re.compile(r"(^|[._'])(lr|eta|alpha|step_size|\w*rate)\b", re.IGNORECASE)
_ROUNDED = 4
"""Roundings of stored parameters: a step that is the difference of two stored values has at most this many."""


def evidence_of(request: Request, folder: Path, real: ScriptRun, mirrors: Sequence[ScriptRun]) -> Evidence:
    """The evidence of runs whose journals are in `folder`."""
    seen = {ended.name: ended.seen() for ended in (real, *mirrors)}
    made = Evidence(request.script, request.ranks, request.steps, request.far, seen.pop("real"), seen)
    if "one" not in made.mirrors:
        return made
    paths = (folder / "real" / REPLICA).read_text(encoding="utf-8").splitlines()
    marks = [event["number"] for event in made.real.of(0, "batch")]
    bounds = [event["number"] for event in _starts(made.real)]
    compared: list[StepSeen] = []
    for step in range(min(made.steps_seen, len(bounds) - 1)):
        if bounds[step + 1] <= request.steps and bounds[step + 1] in marks:
            seen_here = _compared(made, folder, paths, step, bounds[step], bounds[step + 1])
            compared.append(_as_in_the_first(seen_here, compared[0]) if compared else seen_here)
    return replace(made, compared=tuple(compared))


def _as_in_the_first(step: StepSeen, first: StepSeen) -> StepSeen:
    """The step with the first step's factor, if N identical ranks agree with the real run: only a scale that depends on
    N differs.

    Momentum hides the factor in later steps, since the mirror starts from the real run's state.
    """
    if step.not_comparable or first.not_comparable or step.off_all or first.factor_one_off > 1 or not step.off_one:
        return step
    return replace(step, factor_one=first.factor_one, factor_one_off=0.0, v=first.v, rate=first.rate)


def _starts(run: RunSeen) -> list[dict[str, Any]]:
    """The batch at which each step starts."""
    first: dict[int, dict[str, Any]] = {}
    for event in run.of(0, "batch"):
        first.setdefault(event["step"], event)
    return list(first.values())


def _compared(evidence: Evidence, folder: Path, paths: Sequence[str], step: int, start: int, end: int) -> StepSeen:
    reason = _not_comparable(evidence, start, end)
    if reason:
        return StepSeen(step, 0, reason)
    real, one, noise, every = (_update(folder, name, paths, start, end) for name in ("real", "one", "noise", "all"))
    if set(real) != set(one):
        return StepSeen(step, 0, "the script's variables are not those of the real run")
    tolerance, relative = gradient_weights.tolerances(one, noise, [real], "float64")
    before = kept_as(folder / "real" / "0", f"arrays-{start}")
    for place, path in enumerate(paths):
        size = float(np.linalg.norm(before[path].astype(np.float64)))
        tolerance[f"0.{place}"] += _ROUNDED * float(np.finfo(before[path].dtype).eps) * size
    off = gradient_weights.distances(real, one)
    factor, factor_off = scale_of(real, one, tolerance, evidence.ranks)
    ranks = [_sent(folder / "real" / str(rank), start, end) for rank in range(evidence.ranks)]
    whole = _sent(folder / "one" / "0", start, end) or _sent(folder / "all" / "0", start, end)
    fitted = gradient_weights.fit(whole, ranks) if whole else None
    allowed = {
        name: gradient_weights.NOISE * 2.0**-23 * float(np.linalg.norm(values)) for name, values in whole.items()
    }
    w = fitted.weights if fitted is not None else ()
    total = sum(w) or 1.0
    made: dict[str, Any] = {
        "noise": relative,
        "order_matters": gradient_weights.order_matters(one, noise),
        "v": tuple(factor * total / len(ranks) for _ in ranks) if factor_off <= 1 else (1 / len(ranks),) * len(ranks),
        "w": (w,) if w else (),
        "w_off": gradient_weights.worst(fitted.off, allowed)[1] if fitted is not None else 0.0,
        "off_one": {name: value / tolerance[name] for name, value in off.items() if value > tolerance[name]},
        "relative_off": gradient_weights.relative(off, one),
        "rate": _rate(evidence, factor, factor_off) or _rate_alone(real, one, tolerance, evidence.ranks),
        "factor_one": factor,
        "factor_one_off": factor_off,
    }
    if every:
        off_all = gradient_weights.distances(real, every)
        made["off_all"] = {n: value / tolerance[n] for n, value in off_all.items() if value > tolerance[n]}
        made["factor_all"], made["factor_all_off"] = gradient_weights.factor(real, every, tolerance)
    return StepSeen(step, 0, "", **made)


def _not_comparable(evidence: Evidence, start: int, end: int) -> str:
    one = evidence.mirrors["one"]
    given = [event["number"] for event in one.of(0, "batch")]
    if end not in given and len(given) <= end:
        return ended_before(one)
    return misfit(one, range(start, end))


def _update(folder: Path, run: str, paths: Sequence[str], start: int, end: int) -> Arrays:
    """The change of the replica from one mark to another; empty if one of them was not kept.

    A mirror starts from the real run's arrays, and keeps those that it reaches.
    """
    before, after = kept_as(folder / "real" / "0", f"arrays-{start}"), kept_as(folder / run / "0", f"arrays-{end}")
    if before is None or after is None:
        return {}
    return {
        f"0.{place}": (after[path].astype(np.float64) - before[path].astype(np.float64)).reshape(-1)
        for place, path in enumerate(paths)
        if path in before and path in after and before[path].shape == after[path].shape
    }


def _sent(folder: Path, start: int, end: int) -> Arrays:
    """The values that one process passed to its largest reduction in a step."""
    every = [each for number in range(start, end) for each in kept_as(folder, f"sent-{number}") or ()]
    if not every:
        return {}
    sizes: dict[str, int] = {}
    for each in every:
        sizes[each["line"]] = sizes.get(each["line"], 0) + each["size"]
    line = max(sizes, key=lambda name: sizes[name])
    return {
        f"{place}": each["values"].astype(np.float64)
        for place, each in enumerate(each for each in every if each["line"] == line)
    }


def scale_of(got: Arrays, wanted: Arrays, tolerance: dict[str, float], ranks: int) -> tuple[float, float]:
    """The factor of gradients, and the largest remaining distance.

    An optimizer that divides by the gradient's size hides the factor in its parameters; its moments show it.
    """
    clean = _clean(got, wanted, tolerance)
    if any(_near(f, ranks) for f in clean.values()) and any(_near(f, ranks**2) for f in clean.values()):
        return float(ranks), 0.0
    return gradient_weights.factor(got, wanted, tolerance)


def _rate_alone(got: Arrays, wanted: Arrays, tolerance: dict[str, float], ranks: int) -> str:
    """The learning rate, if parameters change by N times as much and the optimizer's state equals that of one
    process.
    """
    clean = _clean(got, wanted, tolerance)
    if len(clean) < len(wanted) or not any(_near(f, ranks) for f in clean.values()):
        return ""
    state = [f for f in clean.values() if not _near(f, ranks)]
    return "the learning rate" if state and all(_near(f, 1) for f in state) else ""


def _rate(evidence: Evidence, factor: float, off: float) -> str:
    """The script's number with the name of a learning rate that is N times as large on N ranks, if updates are, too."""
    if off > 1 or not _near(factor, evidence.ranks):
        return ""
    one, every = (_numbers(evidence.mirrors.get(name)) for name in ("one", "all"))
    names = [name for name, value in one.items() if value and _near(every.get(name, 0.0) / value, evidence.ranks)]
    return next((name for name in names if _RATE.search(name)), "")


def _numbers(run: RunSeen | None) -> dict[str, float]:
    events = run.of(0, "numbers") if run is not None else []
    return {name: value for event in events for name, value in event["values"].items()}


def _clean(got: Arrays, wanted: Arrays, tolerance: dict[str, float]) -> dict[str, float]:
    """The factor of each array that is a multiple of one process's array."""
    found = {}
    for name, values in wanted.items():
        factor, off = (
            gradient_weights.factor({name: got[name]}, {name: values}, tolerance)
            if name in got
            else (0.0, float("inf"))
        )
        if off <= 1:
            found[name] = factor
    return found


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _CLOSE * abs(b)
