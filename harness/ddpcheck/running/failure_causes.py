"""The causes of one failure, and whether one failure explains another."""

from __future__ import annotations

from ..causes import Cause, ranks
from ..verdict import Verdict
from .implied_causes import CONSEQUENCES, implied_by
from .job_circumstances import is_of_another_run

_FOUNDATIONS = (
    "ranks",
    "collectives",
    "gradients",
    "accumulation",
    "unused",
    "buckets",
    "replica_sync",
    "trajectories",
    "programs",
    "sampler",
    "metrics",
    "scores",
    "randomness",
    "trainer",
)
"""Families in order of dependence: each before the families that depend on it. Others come last."""
_ON_COLLECTIVES = frozenset({"sampler", "metrics", "scores", "randomness"})
"""Families that do not depend on replicas."""
_STARTING_RANKS = frozenset({"rendezvous", "failures"})
"""Families whose Jobs start the ranks anew."""


def headline_of(verdict: Verdict) -> str:
    """A failure in one line: its likeliest cause, or its headline."""
    if verdict.diagnosis is None:
        return f"the check itself crashed: {verdict.reason.strip().rpartition(chr(10))[2]}"
    return verdict.cause.headline if verdict.cause else verdict.diagnosis.headline


Identity = tuple[str, ...]
"""The key of a group: the id of the likeliest cause; for an exception, its type and line too."""


def identity_of(verdict: Verdict) -> Identity:
    """The key that failures of the same cause share; empty if no cause is known."""
    return identity_of_cause(verdict.cause) if verdict.cause else ()


def identity_of_cause(cause: Cause) -> Identity:
    """The key of a cause: its id; its parameters too, for an exception."""
    return (cause.id, *(str(value) for _, value in cause.parameters)) if cause.id in _BY_PARAMETERS else (cause.id,)


_BY_PARAMETERS = {
    ranks.METHOD_MISSING.id,
    ranks.RANK_RAISED.id,
    ranks.RESULT_VIOLATES_CONTRACT.id,
    ranks.UNCAUGHT_COMPILED_ERROR.id,
}
"""Causes that are the same mistake only if their parameters agree."""


def implies(cause: Verdict, symptom: Verdict) -> bool:
    """Whether the cause of one failure explains another failure."""
    return is_known_to_imply(cause, symptom) or may_show_as(cause, symptom)


def is_known_to_imply(cause: Verdict, symptom: Verdict) -> bool:
    """Whether the table of implied causes says that the cause of one failure leads to the other failure."""
    identity, told = identity_of(cause), identity_of(symptom)
    known = bool(identity) and bool(told) and identity != told and cause.adapter == symptom.adapter
    value = _known_value(symptom)
    return known and not implied_by(identity[0]).isdisjoint({told[0], value.id if value else told[0]})


def may_show_as(cause: Verdict, symptom: Verdict) -> bool:
    """Whether a failure that tells little rests on the family of a known cause. A guess about the circumstances of a value
    that is known does not tell little. A training run without a setting rests on no cause that shows with this setting.
    """
    identity = identity_of(cause)
    if not identity or cause.adapter != symptom.adapter or identity == identity_of(symptom):
        return False
    if _known_value(symptom) is not None or is_of_another_run(cause, symptom):
        return False
    return not tells_little(cause) and tells_little(symptom) and rests_on(symptom.family, cause.family)


def rests_on(family: str, other: str) -> bool:
    """Whether a failure in the other family may show in this one. Families outside _FOUNDATIONS run Jobs of all kinds."""
    if family == other or other not in _FOUNDATIONS:
        return family == other or (other == "rendezvous" and family in _STARTING_RANKS)
    if family not in _FOUNDATIONS:
        return True
    if family in _ON_COLLECTIVES and other not in ("ranks", "collectives"):
        return False
    return _FOUNDATIONS.index(other) < _FOUNDATIONS.index(family)


def tells_little(verdict: Verdict) -> bool:
    """Whether the failure has no cause, only a guess, or a cause that blames an earlier operation."""
    if verdict.diagnosis is None or verdict.status == "hung":
        return False
    identity = identity_of(verdict)
    return is_a_guess(verdict) or identity[0] in CONSEQUENCES


def is_a_guess(verdict: Verdict) -> bool:
    """Whether the cause is only possible, or not known."""
    return verdict.cause is None or verdict.cause.certainty == "possible"


def _known_value(verdict: Verdict) -> Cause | None:
    """The known cause of a failure that is told by a guess about its circumstances."""
    known = (cause for cause in verdict.causes if cause.certainty == "likely")
    return next(known, None) if is_a_guess(verdict) else None


def depth(verdict: Verdict) -> int:
    """The place of the failure's family in the order of dependence."""
    return _FOUNDATIONS.index(verdict.family) if verdict.family in _FOUNDATIONS else len(_FOUNDATIONS)
