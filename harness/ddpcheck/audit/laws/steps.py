"""Laws of optimizer steps: the same hyperparameters on all ranks, and the same steps taken and skipped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...causes import Cause
from ...causes.audit import steps as causes
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .losses import near
from .optimizer_states import loaded_on_some_ranks
from .resuming import restored_on_some_ranks


def hyperparameters_are_equal(evidence: Evidence) -> LawVerdict:
    seen = 0
    for together in evidence.aligned("step"):
        seen += bool(together[0]["groups"])
        for groups in zip(*(event["groups"] for event in together), strict=False):
            for name in groups[0]:
                values = [group.get(name) for group in groups]
                if any(value != values[0] for value in values):
                    step = together[0]["step"]
                    shown = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
                    headline = f"{name} is {shown} in step {step}"
                    cause = causes.HYPERPARAMETERS_DIFFER(name=name, step=step, values=shown)
                    if name == "lr":
                        cause = _why_rates_differ(evidence, together, shown)
                    loaded = _loaded_by_some_ranks(evidence, together, f"{name} is {shown} in step {step}.")
                    return broken(headline, *restored_on_some_ranks(evidence, step), *loaded, cause)
    for metrics in evidence.aligned("metric"):
        if _apart(metrics):
            step = metrics[0]["step"]
            cause = _metrics_differ(metrics, step, f"In step {step}, all have done so alike.")
            told = f"the ranks give the schedule {cause.get('values')} in step {step}; the rates are equal so far"
            return broken(told, cause)
    return held(f"equal in {seen} steps") if seen else not_judged("no step of a torch optimizer was seen on all ranks")


def _loaded_by_some_ranks(evidence: Evidence, together: Sequence[Event], how: str) -> tuple[Cause, ...]:
    """The cause, if some ranks alone load the state of an optimizer, which has its hyperparameters, before this step of it and
    after the last.
    """
    step, optimizer = together[0]["step"], together[0]["optimizer"]
    before = [e["step"] for e in evidence.real.of(0, "step") if e["optimizer"] == optimizer and e["step"] < step]
    return loaded_on_some_ranks(evidence, optimizer, max(before, default=-1) + 1, step, how)


def _why_rates_differ(evidence: Evidence, together: Sequence[Event], shown: str) -> Cause:
    """Schedules that took different numbers of steps, a metric that a reduction gives to one rank, or metrics of the ranks'
    own.
    """
    step = together[0]["step"]
    for number, places in enumerate(zip(*(event.get("schedules", ()) for event in together), strict=False)):
        if len(set(places)) > 1:
            line = next(e["line"] for e in evidence.real.of(0, "schedule") if e["schedule"] == number)
            return causes.SCHEDULE_STEPS_DIFFER(step=step, values=shown, line=line, counts=tuple(places))
    lines = [_metric_of_a_reduce(evidence, rank, step) for rank in range(evidence.ranks)]
    if line := next(filter(None, lines), ""):
        return causes.METRIC_REDUCED_TO_ONE_RANK(step=step, values=shown, line=line)
    return _why_plateaus_differ(evidence, together, shown) or causes.LEARNING_RATE_DIFFERS(step=step, values=shown)


def _why_plateaus_differ(evidence: Evidence, together: Sequence[Event], shown: str) -> Cause | None:
    """ReduceLROnPlateau was given metrics on some ranks only, or different ones, before this step of its optimizer."""
    step, optimizer = together[0]["step"], together[0]["optimizer"]
    given = [
        [event for event in own if event["step"] <= step and event.get("optimizer", optimizer) == optimizer]
        for own in evidence.each_rank("metric")
    ]
    counts = tuple(map(len, given))
    if len(set(counts)) > 1:
        line = next(own[-1]["line"] for own in given if own)
        return causes.SCHEDULE_STEPS_DIFFER(step=step, values=shown, line=line, counts=counts)
    apart = [metrics for metrics in zip(*given, strict=True) if len({str(event["value"]) for event in metrics}) > 1]
    return _metrics_differ(apart[-1], step, f"The rates differ from step {step} on: {shown}.") if apart else None


def _apart(metrics: Sequence[Event]) -> bool:
    values = [event["value"] for event in metrics]
    return len(set(map(str, values))) > 1 and any(
        not near(value, values[0]) for value in values
    )  # NaN is near no number


def _metrics_differ(metrics: Sequence[Event], step: int, how: str) -> Cause:
    digits = 6 if any(f"{event['value']:.6g}" != f"{metrics[0]['value']:.6g}" for event in metrics) else 12
    values = ", ".join(f"{event['value']:.{digits}g}" for event in metrics)
    return causes.SCHEDULE_METRIC_DIFFERS(step=step, values=values, how=how, line=metrics[0]["line"])


def _metric_of_a_reduce(evidence: Evidence, rank: int, step: int) -> str:
    """The line of the last reduce, if the schedule's last metric is its result on this rank, or a mean of it; else empty."""
    events = [e for e in evidence.real.of(rank, "collective", "left", "metric") if e.get("step", 0) <= step]
    metric = next((event["value"] for event in reversed(events) if event["kind"] == "metric"), None)
    for call, left in reversed(list(pairwise(events))):
        if call["kind"] == "collective" and call["op"] == left.get("op") == "reduce":
            results = [value / part for value in left["values"] or () for part in (1, evidence.ranks)]
            return call["line"] if metric is not None and any(near(metric, result) for result in results) else ""
    return ""


def ranks_skip_the_same_steps(evidence: Evidence) -> LawVerdict:
    together = list(evidence.aligned("scaled_step"))
    if not together:
        return not_judged("there is no gradient scaler")
    for number, events in enumerate(together):
        if len({event["stepped"] for event in events}) > 1:
            ranks = tuple(rank for rank, event in enumerate(events) if not event["stepped"])
            cause = causes.SKIPPED_STEP_DIFFERS(ranks=ranks, step=number, line=events[ranks[0]]["line"])
            return broken(f"rank {ranks[0]} skips step {number}, others take it", cause)
    for looked in () if evidence.sharded else evidence.aligned("unscale"):
        seen = [event["grads"] for event in looked]
        if None not in seen and any(each != seen[0] for each in seen):
            return broken(
                f"the scaler looks at different gradients in step {looked[0]['step']}",
                causes.SCALER_CHECKS_OWN_GRADIENTS(line=looked[0]["line"]),
            )
    return held(f"{len(together)} steps of the scaler are alike")
