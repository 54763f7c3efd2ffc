"""The law of schedules: a schedule that counts ranks, made for the steps of one process, ends at 1/N of the training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...causes import audit
from ..evidence import Evidence, RunSeen
from .law import LawVerdict, broken, held, not_judged

_CLOSE = 1e-6
_APART = 2
"""Steps by which the end of a schedule may be off 1/N of all steps: a schedule may begin at 0 or at 1."""


def schedules_last_as_long_as_training(evidence: Evidence) -> LawVerdict:
    """Compare the scheduler's steps, and the learning rates, with those of one process."""
    ranks, one = evidence.ranks, evidence.mirrors.get("one")
    if ranks == 1:
        return not_judged("there is one rank")
    line = next((event["line"] for event in evidence.real.of(0, "schedule") if event["step"]), "")
    if not line:
        return not_judged("no scheduler of torch took a step")
    if one is None:
        return not_judged("no step was compared with one process")
    own, alone = _advances(evidence.real), _advances(one)
    common = sorted(own.keys() & alone.keys())
    if not common or any(own[step] != ranks * alone[step] for step in common):
        return held("the scheduler takes as many steps as in one process")
    rates = _rates(evidence.real)
    if _proportional(rates, _rates(one)):
        return held("the learning rates are those of one process")
    ends = [event["cut"] for event in evidence.real.of(0, "epoch_end")]
    if evidence.real.end(0)["why"] != "finished" or any(ends):
        return not_judged("the end of the training was not seen")
    last = max((step for step in range(1, len(rates)) if rates[step] != rates[step - 1]), default=0)
    if abs(last - len(rates) / ranks) > _APART or last >= len(rates) - 1:
        return held("the learning rate changes until the end of its schedule")
    return broken(
        f"the learning rate is {rates[last]:.6g} from step {last} on, of {len(rates)}",
        audit.SCHEDULE_COUNTS_RANKS(ranks=ranks, step=last, steps=len(rates), line=line),
    )


def _advances(run: RunSeen) -> Counter[int]:
    """The scheduler's steps before each optimizer step. Those before the first one belong to its construction."""
    return Counter(event["step"] for event in run.of(0, "schedule") if event["step"])


def _rates(run: RunSeen) -> list[float]:
    """The learning rate of the first group in each step of the first optimizer."""
    steps = [event for event in run.of(0, "step") if event["optimizer"] == 0 and event["groups"]]
    return [float(event["groups"][0].get("lr", 0.0)) for event in steps]


def _proportional(rates: Sequence[float], others: Sequence[float]) -> bool:
    """Whether both change alike, in the steps that both have. One may be a multiple, as of a rate for larger batches."""
    pairs = list(zip(rates, others, strict=False))
    if not pairs:
        return True
    rate, other = max(pairs, key=lambda pair: abs(pair[1]))
    return all(abs(a * other - b * rate) <= _CLOSE * abs(rate * other) for a, b in pairs)
