"""The law of a sample's parts: its inputs and its labels are those that one process has together."""

from __future__ import annotations

from ...causes.audit import data as causes
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .passes import loader_of

_FEWEST = 8
"""Samples that must differ. Labels may be drawn at random once, or made from a model, so most differences are notes."""

_ALL = 0.9
"""The part of these samples that must have what another sample has, since some samples are alike."""


def samples_have_their_own_parts(evidence: Evidence) -> LawVerdict:
    runs = [evidence.mirrors[name] for name in ("one", "noise") if name in evidence.mirrors]
    if len(runs) < 2:
        return not_judged("no run as one process was seen")
    apart, again = ([_plain(event) for event in run.of(0, "part_apart")] for run in runs)
    note = ""
    for event in apart:
        if event not in again or event["count"] < _FEWEST:
            continue
        line = str(loader_of(evidence, event["key"]).get("line", event["key"]))
        told = f"{event['count']} of {event['looked']} samples of rank {event['rank']} have another {_name(event)}"
        if event["here"] >= _ALL * event["count"]:
            cause = causes.PART_OF_ANOTHER_SAMPLE(
                rank=event["rank"], part=_name(event), count=event["count"], size=event["looked"], line=line
            )
            return broken(f"{told} than one process has", cause)
        note = note or f"{told} than in the data set of one process: right if it is drawn, wrong if own samples make it"
    return held(observation=note)


def _name(event: Event) -> str:
    return f"part {event['part']}" if event["part"] else "value"


def _plain(event: Event) -> Event:
    return {name: value for name, value in event.items() if name not in ("at", "line")}
