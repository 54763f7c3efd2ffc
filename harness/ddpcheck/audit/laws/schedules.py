"""The law of learning-rate schedules: each is made for the steps that a rank takes, not for those of one process."""

from __future__ import annotations

from itertools import takewhile

from ...causes import audit
from ..event_journal import Event
from ..evidence import Evidence
from .data import loader_of, trained_passes
from .law import LawVerdict, broken, held, not_judged

_STEPS = 4
"""A schedule may reach 0 this many steps before the end of a run by rounding."""
_PART = 0.1
"""The part of a run that training at a rate of 0 takes, to be told."""
_BREAKS = "break"


def schedules_fit_the_run(evidence: Evidence) -> LawVerdict:
    made = evidence.real.of(0, "schedule")
    steps = evidence.real.of(0, "step")
    if not made or not steps:
        return not_judged("no learning-rate schedule of torch was seen")
    return _ended_early(evidence, made, steps) or _made_for_one_process(evidence, made, steps) or held()


def _ended_early(evidence: Evidence, made: list[Event], steps: list[Event]) -> LawVerdict | None:
    """A rate that falls to 0 and stays there while training goes on. On one process it may do the same, unless the schedule
    advances once for each rank, or training takes as many times the steps as there are ranks: else it is a note.
    """
    for schedule in made:
        own = _steps_under(schedule, steps)
        tail = list(takewhile(_is_zero, reversed(own)))
        if len(tail) <= max(_STEPS, _PART * len(own)) or len(tail) == len(own) or all(map(_is_zero, own[: -len(tail)])):
            continue
        begin = tail[-1]
        each = _advance(own, schedule["schedule"])
        part = abs((len(own) - len(tail)) * evidence.ranks - len(own)) <= _STEPS
        told = f"the learning rate is 0 in {len(tail)} of {len(own)} steps"
        if each == evidence.ranks > 1:
            how = f"The schedule advances {each} times in each step, as Accelerate's do on {evidence.ranks} ranks."
        elif each == 1 and evidence.ranks > 1 and part and not evidence.real.of(0, "cut"):
            how = f"The schedule ends after 1/{evidence.ranks} of the steps."
        else:
            return held(observation=told)
        cause = audit.LEARNING_RATE_ENDS_EARLY(
            step=begin["step"], last=own[-1]["step"], how=how, schedule=schedule["name"], line=schedule["line"]
        )
        return broken(told, cause)
    return None


def _steps_under(schedule: Event, steps: list[Event]) -> list[Event]:
    """The steps of the schedule's optimizer since the schedule was made."""
    return [
        event
        for event in steps
        if event["optimizer"] == schedule["optimizer"] and len(event.get("schedules", ())) > schedule["schedule"]
    ]


def _is_zero(step: Event) -> bool:
    return bool(step["groups"]) and all(group.get("lr") == 0 for group in step["groups"])


def _advance(steps: list[Event], schedule: int) -> int:
    """How often the schedule is stepped between two steps of its optimizer."""
    places: list[int] = [event["schedules"][schedule] for event in steps]
    return (places[-1] - places[0]) // max(len(places) - 1, 1)


def _made_for_one_process(evidence: Evidence, made: list[Event], steps: list[Event]) -> LawVerdict | None:
    """A schedule whose length is the number of batches that one process gets in the run's epochs.

    A run that was not watched to its end, and a script that may stop early, show nothing.
    """
    ends = {evidence.real.end(rank)["why"] for rank in range(evidence.ranks)}
    passes = sorted(trained_passes(evidence))
    begin = evidence.real.of(0, "begin")
    early = any(_BREAKS in event["mentions"] for event in begin)
    if ends != {"finished"} or evidence.real.of(0, "cut") or early or evidence.ranks == 1:
        return None
    if len({key for key, _ in passes}) != 1:
        return None
    loader = loader_of(evidence, passes[0][0])
    size, batch, batches = loader.get("size"), loader.get("batch_size"), loader.get("batches")
    if not size or not batch or not batches:
        return None
    epochs = len(passes)
    for schedule in made:
        own = _steps_under(schedule, steps)
        if not own or schedule["length"] is None:
            continue
        window = max(round(epochs * batches / len(own)), 1)
        whole = {size // batch, -(-size // batch)}
        of_one = {epochs * count // window for count in whole} | {epochs * (count // window) for count in whole}
        longer = schedule["length"] > len(own) + _STEPS
        if schedule["length"] in of_one and longer and _advance(own, schedule["schedule"]) == 1:
            cause = audit.SCHEDULE_FOR_ONE_PROCESS(
                schedule=schedule["name"], length=schedule["length"], steps=len(own), epochs=epochs, ranks=evidence.ranks,
                line=schedule["line"],
            )  # fmt: skip
            return broken(f"a schedule of {schedule['length']} steps is at step {len(own)} when the run ends", cause)
    return None
