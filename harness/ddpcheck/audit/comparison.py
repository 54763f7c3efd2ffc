"""Compares the gradients of the real run with those of the mirrors, step by step. The results are plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..seeded_values import Array
from . import gradient_weights
from .event_journal import Event, JournalReader
from .evidence import Evidence, RunSeen, StepSeen
from .incomparable_steps import ended_before, misfit, misfits
from .request import Request, ScriptRun
from .values_apart import first_value_apart

Gradients = dict[str, Array]


def evidence_of(request: Request, folder: Path, real: ScriptRun, mirrors: Sequence[ScriptRun]) -> Evidence:
    """The evidence of runs whose journals are in `folder`."""
    seen = {ended.name: ended.seen() for ended in (real, *mirrors)}
    made = Evidence(request.script, request.ranks, request.steps, request.far, seen.pop("real"), seen)
    if "one" not in made.mirrors:
        return made
    count = min(request.steps, made.steps_seen)
    compared = tuple(_compared(made, folder, step) for step in range(count))
    return Evidence(made.script, made.ranks, made.steps, made.far, made.real, made.mirrors, compared)


def _compared(evidence: Evidence, folder: Path, step: int) -> StepSeen:
    event = evidence.real.of(0, "step")[step]
    optimizer = event["optimizer"]
    ranks = [_load(folder / "real" / str(rank), step) for rank in range(evidence.ranks)]
    local = [_local(each) for each in ranks]
    synced = [_synced(each) for each in ranks]
    reason = _not_comparable(evidence, event, step)
    one, noise, every = (_load(folder / name / "0", step) for name in ("one", "noise", "all"))
    if not reason and not noise and evidence.mirrors["noise"].failed:
        reason = "the run that measures rounding ended before"
    whole = _synced(one) if not reason else {}
    rounding = _synced(noise) if whole and not misfits(evidence.mirrors["noise"], range(step, step + 1)) else {}
    sent = evidence.sent_precision
    precision = event["precision"] or sent or "float32"
    tolerance, relative = gradient_weights.tolerances(whole, rounding, local or synced, precision)
    if sent == "float16":
        tolerance = gradient_weights.with_smallest_float16(tolerance, whole, evidence.ranks)
    v = [gradient_weights.fit(each, local) for each in synced]
    by_parameter = {}
    off = _in(v[0].off, tolerance)
    unexplained = any(value > 1 for value in off.values())
    split = bool(evidence.real.of(0, "gathered"))
    for name in [name for name, value in off.items() if value > 1]:
        by_parameter[name] = gradient_weights.fit({name: synced[0][name]}, local).weights
    made: dict[str, Any] = {
        "v": v[0].weights,
        "v_off": {name: value for name, value in off.items() if value > 1},
        "part_factors": gradient_weights.factors_of_parts(synced[0], _mean(local), evidence.ranks)
        if split and off
        else (),
        "micro_batches": _micro_batches(ranks, synced[0], tolerance) if unexplained else (),
        "v_of_rank": tuple(each.weights for each in v),
        "v_off_of_rank": tuple(gradient_weights.worst(each.off, tolerance)[1] for each in v),
        "by_parameter": by_parameter,
        "noise": relative,
        "alike": _alike(local),
        "order_matters": gradient_weights.order_matters(whole, rounding),
    }
    if reason:
        return StepSeen(step, optimizer, reason, **made)
    off_one = gradient_weights.distances(synced[0], whole)
    factor_one, factor_one_off = gradient_weights.factor(synced[0], whole, tolerance)
    weights, w_off = _weights(ranks, one, tolerance)
    made |= {
        "off_one": {name: value for name, value in _in(off_one, tolerance).items() if value > 1},
        "relative_off": gradient_weights.relative(off_one, whole),
        "factor_one": factor_one,
        "factor_one_off": factor_one_off,
        "w": weights,
        "w_off": w_off,
    }
    if w_off > 1:
        made["value_apart"] = _value_apart(evidence, folder, step, half=precision != "float32")
    if every:
        off_all = gradient_weights.distances(synced[0], _synced(every))
        factor_all, factor_all_off = gradient_weights.factor(synced[0], _synced(every), tolerance)
        made |= {
            "off_all": {name: value for name, value in _in(off_all, tolerance).items() if value > 1},
            "factor_all": factor_all,
            "factor_all_off": factor_all_off,
        }
    return StepSeen(step, optimizer, "", **made)


def _alike(local: Sequence[Gradients]) -> bool:
    first, *others = local
    return (
        bool(others)
        and any(each.any() for each in first.values())
        and all(
            own.keys() == first.keys() and all(np.array_equal(own[name], first[name]) for name in first)
            for own in others
        )
    )


def _value_apart(evidence: Evidence, folder: Path, step: int, *, half: bool) -> str:
    """The line of the first such value, in the first backward pass that shows one."""
    for number in range(evidence.real.of(0, "step")[step]["backwards"]):
        if found := first_value_apart(folder, evidence.ranks, step, number, half=half):
            return found.line
    return ""


def _not_comparable(evidence: Evidence, event: Event, step: int) -> str:
    """The reason why the mirror of one process cannot be compared in this step; empty if it can."""
    one = evidence.mirrors["one"]
    steps = one.of(0, "step")
    if len(steps) <= step:
        return ended_before(one)
    if steps[step]["optimizer"] != event["optimizer"]:
        return "the run as one process stepped another optimizer"
    if reason := misfit(one, range(step, step + 1)):
        return reason
    if any(each["step"] == step and each["point"] for each in evidence.real.of(0, "collective")):
        return "it uses point-to-point calls, which identical ranks cannot make"
    real, mirrored = event["backwards"], steps[step]["backwards"]
    if mirrored not in (real, real * evidence.ranks):
        return f"one process makes {mirrored} backward passes here, but a rank makes {real}"
    if mirrored != real and not _in_turn(one):
        return f"one process makes {mirrored} backward passes here, but a rank makes {real}"
    before = [
        sum(each["step"] < step and not each.get("again") for each in run.of(0, "backward"))
        for run in (evidence.real, one)
    ]
    if before[1] not in (before[0], before[0] * evidence.ranks if _in_turn(one) else before[0]):
        return f"one process made {before[1]} backward passes before this step, but a rank made {before[0]}"
    return ""


def _in_turn(run: RunSeen) -> bool:
    return any(event.get("in_turn") for event in run.of(0, "begin"))


def _load(folder: Path, step: int) -> dict[str, Any]:
    journal, name = JournalReader(folder), f"gradients-{step}"
    return dict(journal.load(name)) if journal.has(name) else {}


def _array(tensor: Any) -> Array:
    found: Array = tensor.double().numpy()
    return found


def _synced(kept: dict[str, Any]) -> Gradients:
    return {name: _array(each["synced"]) for name, each in kept.items()}


def _local(kept: dict[str, Any]) -> Gradients:
    return {
        name: np.sum([_array(part) for part in each["parts"]], axis=0) for name, each in kept.items() if each["parts"]
    }


def _mean(terms: Sequence[Gradients]) -> Gradients:
    """The mean over ranks, of the parameters that all ranks have."""
    first, *others = terms
    return {name: np.mean([values, *(each[name] for each in others)], axis=0) for name, values in first.items()
            if all(name in each and each[name].shape == values.shape for each in others)}  # fmt: skip


def _part(kept: dict[str, Any], number: int) -> Gradients:
    return {name: _array(each["parts"][number]) for name, each in kept.items() if len(each["parts"]) > number}


def _micro_batches(
    ranks: Sequence[dict[str, Any]], synced: Gradients, tolerance: dict[str, float]
) -> tuple[float, ...]:
    """The weights of the window's backwards in G, if they differ and explain G; else none."""
    counts = {len(each["parts"]) for kept in ranks for each in kept.values()}
    if len(counts) != 1 or counts == {1}:
        return ()
    made = gradient_weights.fit(synced, [_mean([_part(kept, n) for kept in ranks]) for n in range(*counts)])
    first, *others = made.weights
    alike = all(abs(each - first) <= gradient_weights.ALIKE * abs(first) for each in others)
    return () if alike or gradient_weights.worst(made.off, tolerance)[1] > 1 else made.weights


def _weights(
    ranks: Sequence[dict[str, Any]], one: dict[str, Any], tolerance: dict[str, float]
) -> tuple[tuple[tuple[float, ...], ...], float]:
    """The weights w of each backward of the window, and the largest distance."""
    count = max((len(each["parts"]) for each in one.values()), default=0)
    if count != max((len(each["parts"]) for kept in ranks for each in kept.values()), default=0):
        return (), float("inf")
    found, off = [], 0.0
    for number in range(count):
        made = gradient_weights.fit(_part(one, number), [_part(kept, number) for kept in ranks])
        found.append(made.weights)
        off = max(off, gradient_weights.worst(made.off, tolerance)[1])
    return tuple(found), off


def _in(off: Any, tolerance: dict[str, float]) -> dict[str, float]:
    """Distances in units of the tolerance."""
    return {name: value / tolerance.get(name, 1e-30) for name, value in off.items()}
