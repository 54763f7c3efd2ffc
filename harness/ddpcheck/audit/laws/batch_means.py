"""Tells a mean over batches of different sizes that counts each batch once, whatever its size."""

from __future__ import annotations

import math

from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, held, not_judged

_EQUAL = 1e-5
_DIFFERENT = 1e-4


def means_weigh_batches_by_their_samples(evidence: Evidence) -> LawVerdict:
    """A note, never a finding: the same script on one process makes the same mean of means."""
    events = evidence.real.events[0]
    ends = [(place, event) for place, event in enumerate(events) if event["kind"] == "epoch_end" and event.get("means")]
    if not ends:
        return not_judged("no pass gives one number for each of its batches and has batches of different sizes")
    for place, end in ends:
        for mean in end["means"]:
            if math.isclose(mean["plain"], mean["weighted"], rel_tol=_DIFFERENT):
                continue
            reduced = next((e for e in events[place:] if _reduces(e, mean["plain"], end["batches"])), None)
            if reduced is not None:
                sizes = ", ".join(map(str, end["sizes"]))
                return held(
                    observation=f"the mean reduced at {reduced['line']} counts batches of {sizes} samples alike: "
                    f"{mean['plain']:.4g} on rank 0, but {mean['weighted']:.4g} over the samples; so it would on one process"
                )
    return held()


def _reduces(event: Event, mean: float, batches: int) -> bool:
    """Whether the event reduces this mean over batches, or its sum beside the number of batches."""
    values = event.get("values") if event["kind"] == "collective" else None
    wanted = [mean, mean * batches] if values and batches in values else [mean]
    return any(math.isclose(value, each, rel_tol=_EQUAL) for value in values or () for each in wanted)
