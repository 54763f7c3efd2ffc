"""Tells which term of a loss is not that of one process, and at which line, from the single values that the loss consists of.

A term is a mean if the mean over ranks is one process's value, and a sum if the sum over ranks is. Averaged gradients suit means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...causes import Cause
from ...causes.audit import gradients as causes
from ..event_journal import Event
from ..evidence import Evidence, RunSeen, StepSeen
from .losses import near

_SUMS = frozenset({"add", "sub", "add_", "sub_", "rsub"})
_FACTORS = frozenset({"mul", "div", "mul_", "div_"})

_CLOSE = 2e-5
"""Values are sums over a batch in float32. A term that is wrong may differ little from one process's."""

Kind = Literal["mean", "sum", "apart"]


def term_apart(evidence: Evidence, step: StepSeen) -> Cause | None:
    """The cause, if a term of the loss, or a number in it, is neither the ranks' mean nor otherwise that of one process."""
    for losses in _losses(evidence, step.step):
        apart = list(losses.apart(losses.own[0]["loss"]))
        if cause := _told(losses, apart, summed=all(near(v, 1.0) for v in step.v)):
            return cause
    return None


def first_apart(evidence: Evidence, step: StepSeen) -> str:
    """The line of the first term that couples samples of a rank; empty if none was seen."""
    for losses in _losses(evidence, step.step):
        for place, how in losses.apart(losses.own[0]["loss"]):
            if how == "apart":
                return losses.line(place)
    return ""


def _told(losses: _Losses, apart: Sequence[tuple[int, str]], *, summed: bool) -> Cause | None:
    for place, how in apart:
        if how == "number":
            own, whole = losses.numbers_at(place)
            return causes.TERM_NORMALISED(line=losses.line(place), own=_shown(own), whole=_shown([whole]))
        if how == "factor":
            (first, *_), whole = losses.numbers_at(place)
            return causes.TERM_SCALED(line=losses.line(place), own=_shown([first]), whole=_shown([whole]))
    sums = [place for place, how in apart if how == "sum"]
    if sums and not summed and losses.kind(losses.own[0]["loss"]) == "apart":
        return causes.TERM_DIVIDED_TWICE(line=losses.line(sums[0]), ranks=losses.ranks)
    if found := losses.number_apart():
        line, own, whole = found
        return causes.NUMBER_DIFFERS(line=line, own=_shown(own), whole=_shown([whole]))
    return None


@dataclass(frozen=True)
class _Losses:
    """The terms of one backward pass on each rank, and in one process."""

    own: tuple[Event, ...]
    whole: Event

    @property
    def ranks(self) -> int:
        return len(self.own)

    def line(self, place: int) -> str:
        return str(self.own[0]["values"][place][0])

    @cached_property
    def _places(self) -> list[tuple[int, ...]]:
        """For each value of rank 0, its places on all ranks and in one process; empty if they do not have as many."""
        return _aligned([event["values"] for event in (*self.own, self.whole)])

    def kind(self, place: int) -> Kind:
        """A value of which the runs have other numbers, as in a loop over samples, is apart."""
        places = self._places[place]
        if not places:
            return "apart"
        events = (*self.own, self.whole)
        *own, whole = (event["values"][each][2] for event, each in zip(events, places, strict=True))
        size = max(abs(value) for value in (*own, whole)) + 1e-12
        if abs(sum(own) / len(own) - whole) <= _CLOSE * size:
            return "mean"
        return "sum" if abs(sum(own) - whole) <= _CLOSE * size else "apart"

    def numbers_at(self, place: int) -> tuple[list[float], float]:
        """The numbers that this value's operation applies, on the ranks and in one process."""
        places, events = self._places[place], (*self.own, self.whole)
        *own, whole = (float(event["values"][each][4]) for event, each in zip(events, places, strict=True))
        return own, whole

    def apart(self, place: int) -> Iterator[tuple[int, str]]:
        """The innermost values that are no means: sum, apart, number (each rank applies another), factor (all apply another
        than one process).
        """
        kind, (_, operation, _, parts, number) = self.kind(place), self.own[0]["values"][place]
        if kind != "apart":
            if kind == "sum":
                yield place, kind
            return
        if operation in _SUMS and parts:
            found = [each for part in parts for each in self.apart(part)]
            yield from found or [(place, "apart")]
        elif operation in _FACTORS and number is not None and self._places[place]:
            own, whole = self.numbers_at(place)
            if any(not near(each, own[0]) for each in own):
                yield place, "number"
            elif not near(own[0], whole):
                yield place, "factor"
            elif parts:
                yield from self.apart(parts[0])
            else:
                yield place, "apart"
        else:
            yield place, "apart"

    def number_apart(self) -> tuple[str, list[float], float] | None:
        """The first number that each rank applies to its tensors, and that differs between them."""
        events = (*self.own, self.whole)
        for place, places in enumerate(_aligned([event["numbers"] for event in events])):
            if not places:
                continue
            *own, whole = (float(event["numbers"][each][2]) for event, each in zip(events, places, strict=True))
            if any(not near(each, own[0]) for each in own):
                return str(self.own[0]["numbers"][place][0]), own, whole
        return None


def _losses(evidence: Evidence, step: int) -> Iterator[_Losses]:
    one = evidence.mirrors.get("one")
    if one is None:
        return
    runs = [terms_of(evidence.real, rank, step) for rank in range(evidence.ranks)] + [terms_of(one, 0, step)]
    if len({len(each) for each in runs}) == 1:
        for *own, whole in zip(*runs, strict=True):
            yield _Losses(tuple(own), whole)


def terms_of(run: RunSeen, rank: int, step: int) -> list[Event]:
    """What the losses of this step consist of, by backward pass."""
    return [event for event in run.of(rank, "terms") if event["step"] == step]


def _aligned(runs: Sequence[list[list[object]]]) -> list[tuple[int, ...]]:
    """For each entry of the first run, the places of its equals in all runs: the n-th at one line, by one operation."""
    found: list[dict[tuple[object, object, int], int]] = []
    totals = []
    for entries in runs:
        seen: Counter[tuple[object, object]] = Counter()
        places = {}
        for place, (line, operation, *_) in enumerate(entries):
            places[line, operation, seen[line, operation]] = place
            seen[line, operation] += 1
        found.append(places)
        totals.append(seen)
    return [
        tuple(places[key] for places in found) if len({total[key[0], key[1]] for total in totals}) == 1 else ()
        for key in found[0]
    ]


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
