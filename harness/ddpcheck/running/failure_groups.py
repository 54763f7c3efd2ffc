"""Groups the failures of a run by cause, and chooses the cause to look at first.

One mistake fails many checks, at every world size, with other numbers each time. Failures are grouped by the id of
their likeliest cause. A group whose cause another group's cause implies (implied_causes.py) is a symptom of that group.
The remaining groups are the fewest causes that explain all failures. The most fundamental is first: collectives before
gradients, gradients before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..causes import Cause, gradients, programs, ranks, values
from ..causes.cause import Certainty
from ..verdict import Verdict
from .failure_causes import Identity, depth, identity_of, is_a_guess, tells_little
from .group_symptoms import FailureGroup, with_symptoms
from .implied_causes import CONDITIONS, LOOKS, implied_by

_PLAIN = "check_gradients_equal_the_large_batch_exactly"
"""A check whose Jobs have no accumulation windows."""
_MANY = 3
"""A cause with fewer than 1/n of the checks of the most common cause explains little of the run."""


def group_failures(verdicts: Iterable[Verdict]) -> list[FailureGroup]:
    """The failures, grouped by cause, with symptoms under their causes; the most fundamental cause is first."""
    every = tuple(verdicts)
    plain = {(each.adapter, each.world_size) for each in every if each.check == _PLAIN and each.status == "passed"}
    failed = [
        _only_in_windows(each) if (each.adapter, each.world_size) in plain else each for each in every if not each.ok
    ]
    shared = [_sharing_a_cause(verdict, failed) for verdict in failed]
    told = [verdict for group in _by_identity(shared) for verdict in _under_its_condition(group)]
    found = with_symptoms(_by_identity(told))
    most = max((len(group.explained) for group in found), default=0)
    return sorted(found, key=lambda group: (_rareness(group, most), *_standing(group.first)))


def _only_in_windows(verdict: Verdict) -> Verdict:
    """The verdict, if gradients of single backwards are right: a cause that needs several leads one that does not."""
    ids = [cause.id for cause in verdict.causes]
    windows = next((cause for cause in verdict.causes if ids[0] in _ONLY_IN_WINDOWS.get(cause.id, ())), None)
    return verdict if windows is None else led_by(verdict, windows, "likely")


_ONLY_IN_WINDOWS = {
    # the same number of micro-batches as of ranks
    gradients.DIVIDED_BY_MICRO_BATCHES.id: {values.DIVIDED_TOO_OFTEN.id},
    programs.REDUCED_EARLY_AFTER_NO_SYNC.id: {values.ZERO.id, gradients.LAST_MICRO_BATCH_MISSING.id},
}
"""The causes that each cause of windows leads."""


def _rareness(group: FailureGroup, most: int) -> int:
    """0 for a cause that explains much of the run; 1 for a rare one that is certain; 2 for a rare guess or description
    of values, which may be a symptom that no rule knows.
    """
    if _MANY * len(group.explained) >= most:
        return 0
    known = identity_of(group.first)
    return 2 if is_a_guess(group.first) or not known or known[0] in LOOKS | {ranks.RANK_RAISED.id} else 1


def _standing(verdict: Verdict) -> tuple[bool, bool, int]:
    """Sort key: certain causes before guesses, causes before errors with a known place, and foundations first."""
    identity = identity_of(verdict)
    return is_a_guess(verdict), bool(identity) and identity[0] == ranks.RANK_RAISED.id, depth(verdict)


def _by_identity(verdicts: Iterable[Verdict]) -> list[FailureGroup]:
    groups: dict[tuple[str, Identity, str], list[Verdict]] = {}
    for verdict in verdicts:
        identity = identity_of(verdict)
        groups.setdefault((verdict.adapter, identity, "" if identity else verdict.check), []).append(verdict)
    return [FailureGroup(tuple(group)) for group in groups.values()]


def _sharing_a_cause(verdict: Verdict, failed: Sequence[Verdict]) -> Verdict:
    """The verdict, led by its possible cause that also explains other failures of the run."""
    if verdict.diagnosis is None:
        return verdict
    if slip := next((cause for cause in verdict.causes if _is_a_slip(cause)), None):
        first = {identity_of(other) for other in failed if other.adapter == verdict.adapter and slip in other.causes}
        return led_by(verdict, slip) if len(first) > 1 else verdict
    if not tells_little(verdict):
        return by_what_others_show(verdict, failed)
    if _leads_elsewhere(verdict, failed):
        return verdict
    others = {identity_of(other)[0] for other in failed if other.adapter == verdict.adapter and identity_of(other)}
    for cause in verdict.causes[1:]:
        if implied_by(cause.id) & others:
            return led_by(verdict, cause, "likely")
    return verdict


def by_what_others_show(verdict: Verdict, failed: Sequence[Verdict]) -> Verdict:
    """The verdict, led by the first of its equally likely causes that another failure shows, or that another's implies."""
    likely = [cause for cause in verdict.causes if cause.certainty == "likely"]
    if len(likely) < 2 or likely[0] != verdict.causes[0]:
        return verdict
    others = (other for other in failed if other is not verdict and other.adapter == verdict.adapter)
    first = {known[0] for other in others if (known := identity_of(other))}
    shown = first.union(*map(implied_by, first))
    return led_by(verdict, next((cause for cause in likely if cause.id in shown), likely[0]))


def _leads_elsewhere(verdict: Verdict, failed: Sequence[Verdict]) -> bool:
    """Whether the guess about this failure is the known cause of another one."""
    known = identity_of(verdict)
    same = (other for other in failed if other.adapter == verdict.adapter and identity_of(other) == known)
    return bool(known) and any(not is_a_guess(other) for other in same) and is_a_guess(verdict)


def _is_a_slip(cause: Cause) -> bool:
    """An error in the program itself: at one place it is one mistake, even under different circumstances."""
    return cause.id == ranks.RANK_RAISED.id and cause.get("error") in _SLIPS


_SLIPS = frozenset(
    each.__name__
    for each in (AttributeError, ImportError, IndexError, KeyError, NameError, TypeError, UnboundLocalError)
)


def _under_its_condition(group: FailureGroup) -> tuple[Verdict, ...]:
    """The failures, led by the condition that all of them name, if their cause only describes the wrong value."""
    known = identity_of(group.first)
    if not known or known[0] not in LOOKS:
        return group.verdicts
    named = [{cause.id for cause in verdict.causes} for verdict in group.verdicts if verdict.diagnosis]
    common = frozenset.intersection(CONDITIONS, *named)
    told = [led_by(verdict, cause) for verdict in group.verdicts for cause in verdict.causes if cause.id in common]
    return tuple(told) if len(told) == len(group.verdicts) else group.verdicts


def led_by(verdict: Verdict, cause: Cause, certainty: Certainty | None = None) -> Verdict:
    """The verdict with this cause first."""
    if verdict.diagnosis is None:
        return verdict
    others = (each for each in verdict.causes if each != cause)
    first = cause.but(certainty or cause.certainty)
    return replace(verdict, diagnosis=replace(verdict.diagnosis, causes=(first, *others)))
