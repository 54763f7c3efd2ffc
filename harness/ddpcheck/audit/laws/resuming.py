"""The law of resuming: a run that stops and resumes from its checkpoint equals the uninterrupted run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...causes import Cause
from ...causes.audit import results as causes
from ...counted_nouns import counted, ranks_named
from ..event_journal import Event
from ..evidence import Evidence, RunSeen
from .law import LawVerdict, broken, held, not_judged

_INPUTS = {"samples": ("batch",), "random draws": ("draw", "later_draw")}
"""What a step reads, and the kinds of events that record it."""


def resumed_runs_go_on(evidence: Evidence) -> LawVerdict:
    """Compare step by step after the checkpoint: the ranks that load it, learning rates, samples, parameters, other models."""
    resumed = evidence.mirrors.get("resumed")
    if resumed is None:
        return not_judged("no resumed run was asked for; see --resume-check")
    if resumed.failed or evidence.mirrors["interrupted"].failed:
        return broken(
            "the interrupted or the resumed run failed", causes.STATE_NOT_RESTORED(what="it ended with an error")
        )
    loads = [rank for rank in range(evidence.ranks) if resumed.of(rank, "load")]
    if 0 < len(loads) < evidence.ranks:
        line = resumed.of(loads[0], "load")[0]["line"]
        return broken(
            f"only {ranks_named(loads)} {'loads' if len(loads) == 1 else 'load'} the checkpoint",
            causes.STATE_RESTORED_ON_ONE_RANK(ranks=tuple(loads), line=line),
        )
    before = len(evidence.mirrors["interrupted"].of(0, "step"))
    for rank in range(evidence.ranks):
        whole = evidence.real.of(rank, "step")[before:]
        again = resumed.of(rank, "step")
        for number, (a, b) in enumerate(zip(whole, again, strict=False)):
            step = before + number
            what = _difference(a, b, partial(_other, evidence.real, step, resumed, number, rank))
            if what:
                own = _one_random_state(evidence.real, step, resumed, number) if a["groups"] == b["groups"] else None
                alike = () if own is None else (causes.RANDOM_STATE_OF_ONE_RANK(rank=own, step=step),)
                cause = causes.STATE_NOT_RESTORED(what=f"{what} in step {step}")
                elsewhere = _other_place(evidence.real, step, resumed, number) if a["groups"] == b["groups"] else ()
                return broken(f"rank {rank}, step {step}: {what}", *alike, *elsewhere, cause)
        if len(whole) != len(again) and not evidence.real.of(rank, "cut"):
            what = f"{counted(len(again), 'step')} instead of {len(whole)}"
            return broken(f"rank {rank} takes {what}", causes.STATE_NOT_RESTORED(what=what))
        if apart := _untrained_apart(evidence.real.of(rank, "state"), resumed.of(rank, "state"), before):
            what = f"{apart[1]}, which no optimizer trains, has other values in step {apart[0]}"
            return broken(f"rank {rank}: {what}", causes.STATE_NOT_RESTORED(what=what))
    count = len(resumed.of(0, "step"))
    return (
        held(f"{counted(count, 'step')} after the checkpoint {'is' if count == 1 else 'are'} equal in all bits")
        if count
        else not_judged("no step was resumed")
    )


def _untrained_apart(whole: Sequence[Event], again: Sequence[Event], before: int) -> tuple[int, str] | None:
    """The first step in which a parameter of a module that no optimizer trains, such as an average of weights, differs; and its
    name.
    """
    known = {event["step"]: event["digests"] for event in whole}
    for event in again:
        step = event["step"] + before
        for name, made in event["digests"].items():
            if name.startswith("m") and known.get(step, {}).get(name, made) != made:
                return step, name.partition(".")[2]
    return None


def restored_on_some_ranks(evidence: Evidence, step: int) -> tuple[Cause, ...]:
    """The cause, if some ranks read a checkpoint in the middle of the run, up to this step, and others did not."""
    loads = [[event for event in events if 0 < event["step"] <= step] for events in evidence.each_rank("load")]
    ranks = tuple(rank for rank, own in enumerate(loads) if own)
    if not 0 < len(ranks) < evidence.ranks:
        return ()
    return (causes.STATE_RESTORED_ON_ONE_RANK(ranks=ranks, line=loads[ranks[0]][-1]["line"]),)


def _difference(whole: dict[str, object], again: dict[str, object], other: Callable[[], str]) -> str:
    """The first difference between two steps; empty if there is none. other: the inputs that differ."""
    if whole["groups"] != again["groups"]:
        for a, b in zip(whole["groups"], again["groups"], strict=False):  # type: ignore[call-overload]
            for name in a:
                if a[name] != b.get(name):
                    return f"{name} is {b.get(name)} instead of {a[name]}"
    if whole["grads"] != again["grads"]:
        return f"gradients differ: other {other()}"
    if whole["after"] != again["after"]:
        return "the update differs: the optimizer's state was not restored"
    return ""


def _other(real: RunSeen, step: int, resumed: RunSeen, number: int, rank: int) -> str:
    """The inputs that differ between step `step` of the whole run and step `number` of the resumed one: the rank's own, or
    another rank's, since gradients are those of all ranks.
    """
    ranks = range(len(real.events))
    for each in sorted(ranks, key=lambda other: other != rank):
        found = [
            noun
            for noun, kinds in _INPUTS.items()
            if _last(_digests(resumed, kinds, each, number), wanted := _digests(real, kinds, each, step)) != wanted
        ]
        if found:
            return " and ".join(found) + (f" on rank {each}" if each != rank else "")
    return "parameters, or other random draws that were not recorded"


def _other_place(real: RunSeen, step: int, resumed: RunSeen, number: int) -> tuple[Cause, ...]:
    """The cause, if every rank's first batch after the checkpoint is one of another step of the uninterrupted run."""
    places = set()
    for rank in range(len(real.events)):
        batches = [(event["step"], event["digest"]) for event in real.of(rank, "batch") if event["grad"]]
        found = _digests(resumed, ("batch",), rank, number)[-1:]
        there = [place for place, digest in batches if found == [digest]]
        places.add(there[0] if there and step not in there else step)
    (place, *others) = places
    if others or place == step:
        return ()
    return (causes.RESUMED_AT_ANOTHER_BATCH(step=step, place=place),)


def _last(read: list[str], wanted: list[str]) -> list[str]:
    """As many of the last inputs as are wanted: a run that resumes may read batches before, to skip them."""
    return read[-len(wanted) :] if wanted else read


def _digests(run: RunSeen, kinds: tuple[str, ...], rank: int, step: int) -> list[str]:
    events = [event for kind in kinds for event in run.of(rank, kind)]
    return [event["digest"] for event in events if event["step"] == step and event.get("grad", True)]


def _one_random_state(real: RunSeen, step: int, resumed: RunSeen, number: int) -> int | None:
    """The rank whose random draws all ranks repeat in the resumed run, while they differ in the whole run; else None."""
    kinds, ranks = _INPUTS["random draws"], range(len(real.events))
    whole = [_digests(real, kinds, rank, step) for rank in ranks]
    again = [_digests(resumed, kinds, rank, number) for rank in ranks]
    if any(each != again[0] for each in again) or all(each == whole[0] for each in whole):
        return None
    return next((rank for rank in ranks if whole[rank] == again[0]), None)
