"""The law of learning-rate schedules: each is made for the steps that a rank takes, not for those of one process."""

from __future__ import annotations

from ...causes.audit import steps as causes
from ..event_journal import Event
from ..evidence import Evidence
from .accumulation import usual
from .law import LawVerdict, broken, held, not_judged
from .passes import loader_of, trained_passes

_STEPS = 4
"""A schedule may reach 0 this many steps before the end of a run by rounding."""
_APART = 2
"""Steps by which the end of a schedule may be off 1/N of the run: a schedule may begin at 0 or at 1."""
_PART = 0.1
"""The part of a run that training at a rate of 0 takes, to be told."""
_BREAKS = "break"
_COMPARED = 3
"""Steps of one process that must follow the ranks' rates."""
_SAME_RATE = 1e-3
_FOLLOWS = 0.1
"""Rates may be off by this part of the difference between the runs: numbers of tokens differ between ranks."""


def schedules_fit_the_run(evidence: Evidence) -> LawVerdict:
    if verdict := _counts_own_samples(evidence):
        return verdict
    if verdict := _scaled_without_batch(evidence):
        return verdict
    made = evidence.real.of(0, "schedule")
    steps = evidence.real.of(0, "step")
    if not made or not steps:
        return not_judged("no learning-rate schedule of torch by steps or epochs was seen")
    for schedule in made:
        own = _steps_under(schedule, steps)
        if own and (verdict := _ended_early(evidence, schedule, own)):
            return verdict
    judged = [_made_for_one_process(evidence, schedule, steps) for schedule in made]
    return next((each for each in judged if each.status == "broken"), judged[0])


def _ended_early(evidence: Evidence, schedule: Event, own: list[Event]) -> LawVerdict | None:
    """A rate that changes no more while training goes on. On one process it may do the same, unless the schedule advances
    once for each rank, or the rate is 0 after as small a part of the steps as a rank has of the batches.
    """
    ranks, count = evidence.ranks, len(own)
    each = _advance(own, schedule["schedule"])
    last = max((place for place in range(1, count) if _rate(own[place]) != _rate(own[place - 1])), default=0)
    after_a_part = abs(last - count / max(ranks, each)) <= _APART and last < count - 1
    zero = _rate(own[-1]) == 0 and 0 < last < count - max(_STEPS, _PART * count)
    told = f"the learning rate is {_rate(own[-1]):.6g} in the last {count - last} of {count} steps"
    where = {"step": last, "steps": count, "line": schedule["line"]}
    counted = [causes.SCHEDULE_COUNTS_MICRO_BATCHES(count=each, **where)] * (each == usual(evidence) > 1)
    counted += [causes.SCHEDULE_COUNTS_RANKS(ranks=ranks, **where)] * (each == ranks > 1)
    if counted and (zero or (after_a_part and _finished(evidence))):
        return broken(told, *counted)
    if each == 1 < ranks and zero and after_a_part and not evidence.real.of(0, "cut"):
        cause = causes.LEARNING_RATE_ENDS_EARLY(
            step=last, steps=count, ranks=ranks, schedule=schedule["name"], line=schedule["line"]
        )
        return broken(told, cause)
    return held(observation=told) if zero else None


def _counts_own_samples(evidence: Evidence) -> LawVerdict | None:
    """One process, whose batches are N times as large, has the learning rates of every N-th step: the rate follows a count of
    the rank's own samples. A constant factor between the rates is a rate that is scaled, and no schedule.
    """
    ranks, one = evidence.ranks, evidence.mirrors.get("one")
    if one is None or ranks == 1 or any(event.get("in_turn") for event in one.of(0, "begin")):
        return None
    first = [event["optimizer"] for event in evidence.real.of(0, "step")[:1]]
    own, whole = (
        [_rate(event) for event in run.of(0, "step") if [event["optimizer"]] == first] for run in (evidence.real, one)
    )
    count = min(len(whole), len(own) // ranks)
    apart = sum(abs(own[n] - whole[n]) for n in range(count))
    if count < _COMPARED or apart <= _SAME_RATE * sum(whole[:count]):
        return None
    factors = [own[n] / whole[n] for n in range(count) if whole[n]]
    if max(factors, default=0.0) - min(factors, default=0.0) <= _SAME_RATE:
        return None
    for offset in (0, ranks - 1):  # samples are counted after a step, or before it
        if sum(abs(own[n * ranks + offset] - whole[n]) for n in range(count)) <= _FOLLOWS * apart:
            step = next(n for n in range(count) if abs(own[n] - whole[n]) > _SAME_RATE * whole[n])
            cause = causes.SCHEDULE_COUNTS_OWN_SAMPLES(ranks=ranks, step=step)
            told = f"the learning rate is {own[step]:.6g} in step {step}, and {whole[step]:.6g} on one process"
            return broken(told, cause)
    return None


def _scaled_without_batch(evidence: Evidence) -> LawVerdict | None:
    """A rate that is multiplied by the world size, while the script divides the batch by it: the whole batch does not grow."""
    ranks, one = evidence.ranks, evidence.mirrors.get("one")
    passes = sorted(trained_passes(evidence))
    if one is None or ranks == 1 or not passes or any(event.get("in_turn") for event in one.of(0, "begin")):
        return None
    key = passes[0][0]
    alone = next((event for event in one.of(0, "loader") if event["key"] == key), None)
    own = loader_of(evidence, key)
    if alone is None or not own.get("batch_size") or own["batch_size"] * ranks != alone.get("batch_size"):
        return None
    pairs = list(zip(evidence.real.of(0, "step"), one.of(0, "step"), strict=False))
    factors = {round(_rate(a) / _rate(b), 4) for a, b in pairs if _rate(b)}
    if factors not in ({float(ranks)}, {round(ranks**0.5, 4)}):
        return None
    whole, rates = alone["batch_size"], (_rate(pairs[0][1]), _rate(pairs[0][0]))
    return broken(
        f"the learning rate is {rates[1]:.6g} in step 0, and {rates[0]:.6g} on one process, with batches of {whole} samples",
        causes.RATE_SCALED_WITHOUT_BATCH(factor=factors.pop(), ranks=ranks, batch=whole, line=own["line"]),
    )


def _steps_under(schedule: Event, steps: list[Event]) -> list[Event]:
    """The steps of the schedule's optimizer since the schedule was made."""
    return [
        event
        for event in steps
        if event["optimizer"] == schedule["optimizer"] and len(event.get("schedules", ())) > schedule["schedule"]
    ]


def _rate(step: Event) -> float:
    return float(step["groups"][0].get("lr", 0.0)) if step["groups"] else 0.0


def _finished(evidence: Evidence) -> bool:
    """Whether the whole run was watched."""
    ends = {evidence.real.end(rank)["why"] for rank in range(evidence.ranks)}
    return ends == {"finished"} and not evidence.real.of(0, "cut")


def _advance(steps: list[Event], schedule: int) -> int:
    """How often the schedule is stepped between two steps of its optimizer."""
    places: list[int] = [event["schedules"][schedule] for event in steps]
    return (places[-1] - places[0]) // max(len(places) - 1, 1)


def _made_for_one_process(evidence: Evidence, schedule: Event, steps: list[Event]) -> LawVerdict:
    """A schedule whose length is the number of batches that one process gets in the run's epochs.

    A run that was not watched to its end, and a script that may stop early, show nothing.
    """
    passes = sorted(trained_passes(evidence))
    own = _steps_under(schedule, steps)
    loader = loader_of(evidence, passes[0][0]) if passes else {}
    size, batch, batches = (int(loader.get(name) or 0) for name in ("size", "batch_size", "batches"))
    unknown = {
        "there is one rank": evidence.ranks == 1,
        "the run was not watched to its end": not _finished(evidence),
        "the script has a break, and may stop early": any(
            _BREAKS in e["mentions"] for e in evidence.real.of(0, "begin")
        ),
        f"the length of {schedule['name']} is not known": schedule["length"] is None,
        "training reads several loaders": len({key for key, _ in passes}) > 1,
        "the number of batches is not known": 0 in (size, batch, batches, len(own)),
    }
    for reason, holds in unknown.items():
        if holds:
            return not_judged(f"{reason}; nothing else is wrong with the rates")
    epochs = len(passes)
    window = max(round(epochs * batches / len(own)), 1)
    whole = {size // batch, -(-size // batch)}
    of_one = {epochs * count // window for count in whole} | {epochs * (count // window) for count in whole}
    longer = schedule["length"] > len(own) + _STEPS
    if schedule["length"] in of_one and longer and _advance(own, schedule["schedule"]) == 1:
        cause = causes.SCHEDULE_FOR_ONE_PROCESS(
            schedule=schedule["name"], length=schedule["length"], steps=len(own), epochs=epochs, ranks=evidence.ranks,
            line=schedule["line"],
        )  # fmt: skip
        return broken(f"a schedule of {schedule['length']} steps is at step {len(own)} when the run ends", cause)
    return held()
