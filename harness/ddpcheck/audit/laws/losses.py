"""Compares the ranks' losses with those of one process, where every gradient is too small by the world size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence, RunSeen, StepSeen

CLOSE = 1e-3
"""Losses and factors within this part of one another are equal. Those of a sum over samples differ by the world size."""


def lost_in_the_loss(evidence: Evidence, steps: Sequence[int], line: str) -> Cause | None:
    """The cause if the mean of the ranks' losses is one process's loss: the loss is no sum over samples, so its gradient is
    lost. None if the losses differ, or are not known.
    """
    one, ranks = evidence.mirrors.get("one"), evidence.ranks
    if one is None:
        return None
    for step in steps:
        own = [_loss(evidence.real, rank, step) for rank in range(ranks)]
        whole = _loss(one, 0, step)
        if None in own or not whole or not near(sum(each or 0.0 for each in own) / ranks, whole):
            return None
    first, alone = (_backwards(run, 0, steps[0])[-1] for run in (evidence.real, one))
    if alone["scale"] and near(first["scale"] / alone["scale"], ranks):
        return causes.LOSS_FACTOR_IGNORED(factor=first["scale"] / alone["scale"], operation=first["root"])
    for event in evidence.real.of(0, "collective"):
        if event["step"] in steps and event["op"] == "all_reduce" and event["loses_gradient"]:
            return causes.REDUCED_WITHOUT_GRADIENT(ranks=ranks, line=event["line"])
    if reduced := _reduced_loss(evidence, steps[0]):
        return causes.LOSS_AVERAGED_TWICE(ranks=ranks, line=reduced["line"])
    return causes.GRADIENT_SMALLER_THAN_LOSS(ranks=ranks, line=line)


def _reduced_loss(evidence: Evidence, step: int) -> Event | None:
    """The all-reduce in this step that makes every rank's loss the mean over the ranks."""
    losses = [_loss(evidence.real, rank, step) for rank in range(evidence.ranks)]
    for together in evidence.aligned("collective"):
        if any(event["step"] != step or event["op"] != "all_reduce" for event in together):
            continue
        values = [event.get("values") or [] for event in together]
        if any(len(each) != 1 for each in values):
            continue
        mean = sum(each[0] for each in values) / evidence.ranks
        if all(loss is not None and near(loss, mean) for loss in losses):
            return together[0]
    return None


def divided_by_own_number(evidence: Evidence, step: StepSeen, line: str) -> Cause | None:
    """The cause, if each rank divides its loss by a number of its own, between which one process's is. A sum of counts is not."""
    one = evidence.mirrors.get("one")
    if one is None:
        return None
    firsts = [_backwards(evidence.real, rank, step.step)[:1] for rank in range(evidence.ranks)]
    scales = [event["scale"] for first in (*firsts, _backwards(one, 0, step.step)[:1]) for event in first]
    if len(scales) <= evidence.ranks or not all(scales):
        return None
    *own, whole = (1 / scale for scale in scales)
    if near(min(own), max(own)) or not min(own) <= whole <= max(own):
        return None
    shown = ", ".join(f"{each:.4g}" for each in own)
    return causes.LOSS_DIVIDED_BY_OWN_NUMBER(own=shown, whole=whole, line=step.value_apart or line)


def _backwards(run: RunSeen, rank: int, step: int) -> list[Event]:
    return [event for event in run.of(rank, "backward") if event["step"] == step and not event.get("again")]


def _loss(run: RunSeen, rank: int, step: int) -> float | None:
    """The sum of the losses of a step's backward passes. None if one of them is no finite number, or there is none."""
    losses = [event["loss"] for event in _backwards(run, rank, step)]
    if not losses or any(loss is None or not math.isfinite(loss) for loss in losses):
        return None
    return float(sum(losses))


def near(a: float, b: float) -> bool:
    """Whether weights, factors or losses are equal but for rounding."""
    return abs(a - b) <= CLOSE * max(abs(b), 1e-9)
