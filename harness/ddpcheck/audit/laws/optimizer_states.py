"""Why parameters part: the ranks' optimizers have different states, such as momentum, which no wrapper sends."""

from __future__ import annotations

from ...causes import Cause
from ...causes.audit import replicas as causes
from ..event_journal import Event
from ..evidence import Evidence


def optimizer_states_apart(evidence: Evidence, equal: int, step: int) -> tuple[Cause, ...]:
    """The cause, if states differ before the first step of an optimizer, or if some ranks alone load one later. equal, step:
    the last step in which parameters are equal, and the first in which they differ.
    """
    if evidence.gradients_apart:
        return ()
    for together in _first_states(evidence):
        first, optimizer = together[0]["step"], together[0]["optimizer"]
        apart = _apart(together)
        if first >= step or not apart:
            continue
        parameter = evidence.name(f"{optimizer}.{apart[0]}")
        counts = [event["counted"] for event in together]
        how = f"Before step {first}, the states of {parameter} differ."
        if len(set(counts)) > 1:
            how = f"Before step {first}, the ranks' optimizers have counted {', '.join(map(str, counts))} steps."
        if cause := loaded_on_some_ranks(evidence, optimizer, 0, first, how):
            return cause
        if any(len({own for own in each if own}) > 1 for each in _by_parameter(together)):
            return (causes.OPTIMIZER_STATES_DIFFER(parameter=parameter, step=first),)
    for optimizer in sorted(
        {event["optimizer"] for events in evidence.each_rank("optimizer_loaded") for event in events}
    ):
        how = f"Parameters are equal in step {equal}, and differ in step {step}."
        for later in loaded_on_some_ranks(evidence, optimizer, max(equal, 1), step - 1, how):
            return (later.but("likely"),)  # the state may have been sent, which is not recorded
    return ()


def _first_states(evidence: Evidence) -> list[tuple[Event, ...]]:
    """The state of each optimizer that all ranks step, before its first step."""
    by_optimizer = [{event["optimizer"]: event for event in own} for own in evidence.each_rank("optimizer_state")]
    common = set(by_optimizer[0]).intersection(*by_optimizer[1:])
    return [tuple(own[optimizer] for own in by_optimizer) for optimizer in sorted(common)]


def _by_parameter(together: tuple[Event, ...]) -> list[tuple[str, ...]]:
    """The digests of all ranks for each parameter; empty ones where a rank has no state."""
    size = max(len(event["digests"]) for event in together)
    return list(zip(*(event["digests"] or [""] * size for event in together), strict=False))


def _apart(together: tuple[Event, ...]) -> list[int]:
    """The numbers of the parameters whose states differ."""
    return [number for number, each in enumerate(_by_parameter(together)) if len(set(each)) > 1]


def loaded_on_some_ranks(evidence: Evidence, optimizer: int, first: int, last: int, how: str) -> tuple[Cause, ...]:
    """The cause, if some ranks load the optimizer's state between these steps, and others do not."""
    loads = [
        [event for event in own if event["optimizer"] == optimizer and first <= event["step"] <= last]
        for own in evidence.each_rank("optimizer_loaded")
    ]
    ranks = tuple(rank for rank, own in enumerate(loads) if own)
    if not 0 < len(ranks) < evidence.ranks:
        return ()
    return (causes.OPTIMIZER_STATE_LOADED_ON_ONE_RANK(ranks=ranks, line=loads[ranks[0]][-1]["line"], how=how),)
