"""The ranks' random results at one place of the script, put together in the shape that the mirror's operation needs."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..recorded_process import Run
from .large_batch import Misfit, joined
from .recorded_ranks import RecordedRank, recorded_ranks


def replayed(run: Run, key: str, drawn: torch.Tensor, *, integer: bool, name: str) -> torch.Tensor | None:
    """The results; None if the real run has no such draw, or the draws do not fit. The mirror's own draw is then used
    and noted.
    """
    if not run.full:
        return None
    every = recorded_ranks(run)
    if run.settings.in_turn and " train " in key:
        turn = _in_turn(run, key, every)
        there = [] if turn is None else [turn]
    else:
        there = [value for recorded in every if (value := _kept(recorded, run.step).get(key)) is not None]
    if not there:
        run.note("misfit", what="draw", step=run.step, key=key, why="the ranks have no such draw", line=run.line())
        return None
    made = _together(run, there, tuple(drawn.shape), integer=integer, name=name)
    if made is None:
        shapes, wanted = [tuple(each.shape) for each in there], tuple(drawn.shape)
        why = f"the ranks drew shapes {', '.join(map(str, shapes))}; one process needs {wanted}"
        if set(shapes) == {wanted}:
            why = f"the ranks drew different values of shape {wanted}; one process draws them once"
        run.note("misfit", what="draw", step=run.step, key=key, why=why, line=run.line())
        return None
    if made.shape != drawn.shape or (made is there[0] and _for_all_samples(run, made)):
        run.note("draw_of_all", line=run.line())
    return made.to(drawn.device, drawn.dtype)


def _together(
    run: Run, there: list[torch.Tensor], wanted: tuple[int, ...], *, integer: bool, name: str
) -> torch.Tensor | None:
    first = there[0]
    same_shape = all(each.shape == first.shape for each in there)
    same = same_shape and all(torch.equal(each, first) for each in there)
    if run.settings.in_turn:
        return first if tuple(first.shape) == wanted else None
    for place in range(len(wanted)):
        padded = _padded(there, wanted, place) if run.recollated else there
        if _fits(padded, wanted, place):
            return _joined(run, padded, place)
    if same and tuple(first.shape) in (wanted, _of_all_ranks(wanted, len(there))):
        return first
    if name == "randperm" or not same_shape or tuple(first.shape) != wanted or not wanted:
        return None
    # the script computes the number of samples itself, as nanoGPT's get_batch does
    per_sample = bool(run.samples) and all(n == s for n, s in zip([len(e) for e in there], run.samples, strict=False))
    if (integer and not run.samples) or per_sample:
        run.samples = run.samples or tuple(len(each) for each in there)
        return _joined(run, there, 0)
    return None


def _for_all_samples(run: Run, drawn: torch.Tensor) -> bool:
    """Whether a rank draws as many numbers as there are samples on all ranks, as one process does."""
    return len(run.samples) > 1 and drawn.dim() > 0 and len(drawn) == sum(run.samples)


def _of_all_ranks(shape: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """The shape of a draw for the samples of all ranks, of which each rank takes its own."""
    return (ranks * shape[0], *shape[1:]) if shape else shape


def _joined(run: Run, there: list[torch.Tensor], place: int) -> torch.Tensor | None:
    try:
        return joined(there, place, sum(run.samples), int(run.settings.rolled))
    except Misfit:
        return None


def _padded(there: list[torch.Tensor], wanted: tuple[int, ...], place: int) -> list[torch.Tensor]:
    """The ranks' results with zeros for what the collate function adds to their samples, where only that is missing."""
    shapes = [(*wanted[:place], *each.shape[place : place + 1], *wanted[place + 1 :]) for each in there]
    if any(not _within(each.shape, shape) for each, shape in zip(there, shapes, strict=True)):
        return there
    made = [each.new_zeros(shape) for each, shape in zip(there, shapes, strict=True)]
    for larger, each in zip(made, there, strict=True):
        larger[tuple(map(slice, each.shape))] = each
    return made


def _within(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    return len(shape) == len(larger) and all(own <= most for own, most in zip(shape, larger, strict=True))


def _fits(there: list[torch.Tensor], wanted: tuple[int, ...], place: int) -> bool:
    """Whether the ranks' results, joined along this dimension, have the wanted shape."""
    if any(each.dim() != len(wanted) for each in there) or sum(each.shape[place] for each in there) != wanted[place]:
        return False
    rest = (*wanted[:place], *wanted[place + 1 :])
    return all((*each.shape[:place], *each.shape[place + 1 :]) == rest for each in there)


_asked: dict[str, int] = {}
"""The number of requests for each operation and line in this process, over all steps."""


def _in_turn(run: Run, key: str, every: tuple[RecordedRank, ...]) -> torch.Tensor | None:
    """The draw of the rank whose turn it is: a micro-batch of rank 0, one of rank 1, and so on.

    Counted over all steps, because the next micro-batch's numbers may be drawn before the step.
    """
    name = key.rpartition(" ")[0]
    number = _asked[name] = _asked.get(name, -1) + 1
    each = _per_micro_batch(every[0], name)
    micro, place = divmod(number, each)
    turn, rank = divmod(micro, len(every))
    drawn = _sequence(every[rank], name)
    index = turn * each + place
    return drawn[index] if index < len(drawn) else None


@functools.cache
def _sequence(recorded: RecordedRank, name: str) -> list[Any]:
    """All draws of one operation and line, in order."""
    steps = sorted({event["step"] for event in recorded.events if event["kind"] == "draw"})
    return [value for step in steps for key, value in _kept(recorded, step).items() if key.rpartition(" ")[0] == name]


@functools.cache
def _per_micro_batch(recorded: RecordedRank, name: str) -> int:
    """The number of such draws in each backward pass."""
    steps = {event["step"] for event in recorded.events if event["kind"] == "draw"}
    backwards = sum(1 for event in recorded.events if event["kind"] == "backward" and event["step"] in steps)
    return max(1, int(len(_sequence(recorded, name)) / max(backwards, 1) + 0.5))


@functools.cache
def _kept(recorded: RecordedRank, step: int) -> dict[str, Any]:
    name = f"draws-{step}"
    return dict(recorded.journal.load(name)) if recorded.journal.has(name) else {}
