"""Laws of accumulation windows: each micro-batch counts as it should, none is lost, and only the last one communicates."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

from ...causes.audit import accumulation as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged

_CLOSE = 1e-6
_ONE_BACKWARD = "each step has one backward pass"
_SEVERAL_LOSSES = "steps have several backward passes, but not one for each of several batches"


def windows(evidence: Evidence) -> list[list[Event]]:
    """The backward passes before each optimizer step, on rank 0."""
    found: dict[int, list[Event]] = {}
    for event in evidence.real.of(0, "backward"):
        if event.get("again"):
            continue
        found.setdefault(event["step"], []).append(event)
    stepped = {event["step"] for event in evidence.real.of(0, "step")}
    return [events for step, events in sorted(found.items()) if step in stepped]


def windows_of_micro_batches(evidence: Evidence) -> list[list[Event]]:
    """Windows in which each backward pass is that of a micro-batch.

    A loop over micro-batches has one line, or a branch for each kind of micro-batch, such as the last one of a window. In
    several branches, passes are those of micro-batches if one loader gave a batch for each, and if they have one kind of
    loss. Other passes of several lines are of several losses, as in a GAN, or in training on two data sets.
    """
    given = Counter((event["key"], event["step"]) for event in evidence.real.of(0, "batch") if event["grad"])
    keys = {key for key, _ in given}

    def each_has_a_batch(events: list[Event]) -> bool:
        return any(given[key, events[0]["step"]] == len(events) for key in keys)

    return [
        events
        for events in windows(evidence)
        if len({event["line"] for event in events}) == 1
        or (len({event["root"] for event in events}) == 1 and each_has_a_batch(events))
    ]


def usual(evidence: Evidence) -> int:
    """The number of micro-batches in most windows; 1 if no window has micro-batches."""
    counts = Counter(map(len, windows_of_micro_batches(evidence)))
    return counts.most_common(1)[0][0] if counts else 1


def _no_micro_batches(evidence: Evidence) -> LawVerdict:
    return not_judged(_SEVERAL_LOSSES if any(len(events) > 1 for events in windows(evidence)) else _ONE_BACKWARD)


def windows_divide_by_their_size(evidence: Evidence) -> LawVerdict:
    count = usual(evidence)
    if count < 2:
        return _no_micro_batches(evidence)
    every = windows(evidence)
    full = next(events for events in windows_of_micro_batches(evidence) if len(events) == count)
    scale = full[-1]["scale"]
    line = full[-1]["line"]
    weights = [step.v for step in evidence.compared if step.v]
    scaled_later = bool(weights) and any(abs(v * evidence.ranks * count - 1) < _CLOSE * 100 for v in weights[0])
    named = full[-1]["root"]
    if abs(scale - 1) < _CLOSE and not scaled_later and not named.startswith(("Div", "Mul")):
        return broken(
            f"{count} losses are added with weight 1 each", causes.ACCUMULATION_NOT_DIVIDED(count=count, line=line)
        )
    if abs(scale * count - 1) < _CLOSE:
        for events in every:
            own = len(events)
            if 0 < own < count and abs(events[-1]["scale"] * count - 1) < _CLOSE:
                return broken(
                    f"step {events[0]['step']} has {counted(own, 'micro-batch', 'micro-batches')}, each weighted 1/{count}",
                    causes.LAST_WINDOW_FULL_COUNT(count=own, full=count, line=line),
                )
        return held(observation=_alike_of_different_sizes(evidence, every))
    return held(observation="the loss's last factor is another one than 1/k; only the sum over the window was compared")


def _alike_of_different_sizes(evidence: Evidence, every: list[list[Event]]) -> str:
    """What to tell of means over micro-batches of different sizes with one factor: a note, as one process makes the same."""
    for events in every:
        step = events[0]["step"]
        sizes = [e["size"] for e in evidence.real.of(0, "batch") if e["step"] == step and e["grad"]]
        scales = [event["scale"] for event in events]
        means = all(event.get("mean") for event in events)
        if means and len(sizes) == len(events) and len(set(sizes)) > 1 and max(scales) - min(scales) < _CLOSE:
            told = ", ".join(map(str, sizes))
            return f"step {step} counts micro-batches of {told} samples alike, so samples do not; so it would on one process"
    return ""


def windows_are_stepped(evidence: Evidence) -> LawVerdict:
    if usual(evidence) < 2:
        return _no_micro_batches(evidence)
    ends = [e for e in evidence.real.of(0, "epoch_end") if e["trained"] and not e["cut"]]
    for event in ends:
        pending = _pending(evidence, event)
        if pending:
            return broken(
                f"pass {event['passed']} ends with {counted(pending, 'micro-batch', 'micro-batches')} after the last step",
                causes.LAST_WINDOW_NOT_STEPPED(count=pending),
            )
    if not ends:
        return not_judged("no epoch ended")
    unused = _of_unused_batches(evidence, ends)
    return held("" if unused else f"{counted(len(ends), 'epoch end')} looked at", observation=unused)


def _of_unused_batches(evidence: Evidence, ends: list[Event]) -> str:
    """What to tell of batches that were collected for a window and dropped: a note, as a loader's drop_last drops some, too."""
    for end in ends:
        if unused := _unused_batches(evidence, end):
            last = "last" if unused == 1 else f"last {unused}"
            return f"no backward pass uses the {last} of the {end['batches']} batches of pass {end['passed']}"
    return ""


def _pending(evidence: Evidence, end: Event) -> int:
    """Micro-batches after the last step, when the next pass begins."""
    pending = int(end["pending"])
    for event in _until_next_pass(evidence, end):
        if event["kind"] == "backward" and not event.get("again"):
            pending += 1
        elif event["kind"] == "step":
            pending = 0
    return pending


def _unused_batches(evidence: Evidence, end: Event) -> int:
    """Batches after the last step of a pass without a backward pass, if each batch before them has one."""
    events = evidence.real.events[0]
    last = events.index(end)
    own = [e for e in events[:last] if e["kind"] == "batch" and (e["key"], e["passed"]) == (end["key"], end["passed"])]
    first = events.index(own[0]) if own else last
    during = [*events[first:last], *_until_next_pass(evidence, end)]
    used = Counter(e["step"] for e in during if e["kind"] == "backward" and not e.get("again"))
    given = Counter(e["step"] for e in own)
    differing = [step for step, count in given.items() if used[step] != count]
    return given[end["step"]] if differing == [end["step"]] and not used[end["step"]] else 0


def _until_next_pass(evidence: Evidence, end: Event) -> list[Event]:
    """The events after the end of a pass, in which a loader that reads ahead may still have its last batches used."""
    events = evidence.real.events[0]
    after = events[events.index(end) + 1 :]
    return list(takewhile(lambda event: (event["kind"], event.get("key")) != ("batch", end["key"]), after))


def only_the_last_micro_batch_communicates(evidence: Evidence) -> LawVerdict:
    count = usual(evidence)
    if count < 2:
        return _no_micro_batches(evidence)
    forwards = [event for event in evidence.real.of(0, "forward") if event["grad"]]
    if not forwards:
        return not_judged("no forward pass went through DistributedDataParallel")
    every = windows(evidence)
    for events in every:
        own = [event for event in forwards if event["step"] == events[0]["step"]]
        if len(own) < 2 or not all(event["sync"] for event in own):
            continue
        if any(not all(event["sync"]) for event in events[:-1]):
            return broken(
                f"step {events[0]['step']}: forward passes synchronise, backward passes are in no_sync",
                causes.NO_SYNC_AROUND_BACKWARD(line=events[0]["line"]),
            )
        begin = evidence.real.of(0, "begin")
        meant = any("no_sync" in event.get("mentions", ()) for event in begin) or bool(evidence.real.of(0, "no_sync"))
        if meant:
            return broken(
                f"all {len(own)} micro-batches of step {events[0]['step']} communicate",
                causes.COMMUNICATION_EVERY_MICRO_BATCH(count=len(own), line=own[0]["line"]),
            )
        return held(observation=f"all {count} micro-batches communicate; no_sync would save that")
    return held()
