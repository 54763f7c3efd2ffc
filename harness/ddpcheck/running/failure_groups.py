"""Groups the failures of a run by cause, and chooses the cause to look at first.

One mistake fails many checks, at every world size, with other numbers each time. Failures are grouped by the id of
their likeliest cause. A group whose cause another group's cause implies (implied_causes.py) is a symptom of that group.
The remaining groups are the fewest causes that explain all failures. The most fundamental is first: collectives before
gradients, gradients before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..causes import Cause, ranks
from ..causes.cause import Certainty
from ..verdict import Verdict
from .implied_causes import CONDITIONS, CONSEQUENCES, LOOKS, implied_by

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
_MANY = 3
"""A cause with fewer than 1/n of the checks of the most common cause explains little of the run."""


@dataclass(frozen=True)
class FailureGroup:
    """Verdicts of one adapter that seem to have one cause, in the order of the run; the simplest is first.

    symptoms: failures that this cause implies, grouped by their own causes.
    """

    verdicts: tuple[Verdict, ...]
    symptoms: tuple[FailureGroup, ...] = ()

    @property
    def first(self) -> Verdict:
        return min(self.verdicts, key=lambda verdict: (_is_a_guess(verdict), _depth(verdict)))

    @property
    def names(self) -> frozenset[str]:
        """The wrong parameters that the failures name."""
        told = (verdict.diagnosis for verdict in self.verdicts)
        return frozenset(each.subject[1] if each is not None else "" for each in told)

    @property
    def text(self) -> str:
        """The cause's headline, or the failure's if no cause is known."""
        return headline_of(self.first)

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verdict.check for verdict in self.verdicts))

    @property
    def explained(self) -> tuple[str, ...]:
        """The checks of this cause and of its symptoms."""
        return tuple(dict.fromkeys((*self.checks, *(name for each in self.symptoms for name in each.checks))))

    def to_plain(self) -> dict[str, Any]:
        """JSON: the adapter, the cause's id (null if none is known), the sentence, its checks, and its symptoms."""
        identity = identity_of(self.first)
        return {
            "adapter": self.first.adapter,
            "cause": identity[0] if identity else None,
            "headline": self.text,
            "checks": list(self.checks),
            "world_sizes": list(self.world_sizes),
            "symptoms": [symptom.to_plain() for symptom in self.symptoms],
        }

    @property
    def world_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({verdict.world_size for verdict in self.verdicts}))


def headline_of(verdict: Verdict) -> str:
    """A failure in one line: its likeliest cause, or its headline."""
    if verdict.diagnosis is None:
        return f"the check itself crashed: {verdict.reason.strip().rpartition(chr(10))[2]}"
    return verdict.diagnosis.cause.headline if verdict.diagnosis.cause else verdict.diagnosis.headline


Identity = tuple[str, ...]
"""The key of a group: the id of the likeliest cause; for an exception, its type and line too."""


def identity_of(verdict: Verdict) -> Identity:
    """The key that failures of the same cause share; empty if no cause is known."""
    cause = verdict.diagnosis.cause if verdict.diagnosis is not None else None
    if cause is None:
        return ()
    return _identity(cause)


def _identity(cause: Cause) -> Identity:
    return (cause.id, *(str(value) for _, value in cause.parameters)) if cause.id in _BY_PARAMETERS else (cause.id,)


_BY_PARAMETERS = {
    ranks.METHOD_MISSING.id,
    ranks.RANK_RAISED.id,
    ranks.RESULT_VIOLATES_CONTRACT.id,
    ranks.UNCAUGHT_COMPILED_ERROR.id,
}
"""Causes that are the same mistake only if their parameters agree."""


def group_failures(verdicts: Iterable[Verdict]) -> list[FailureGroup]:
    """The failures, grouped by cause, with symptoms under their causes; the most fundamental cause is first."""
    failed = [verdict for verdict in verdicts if not verdict.ok]
    shared = [_sharing_a_cause(verdict, failed) for verdict in failed]
    found = _with_symptoms([_under_its_condition(group) for group in _by_identity(shared)])
    most = max((len(group.explained) for group in found), default=0)
    return sorted(found, key=lambda group: (_rareness(group, most), *_standing(group.first)))


def _rareness(group: FailureGroup, most: int) -> int:
    """0 for a cause that explains much of the run; 1 for a rare one that is certain; 2 for a rare guess or description
    of values, which may be a symptom that no rule knows.
    """
    if _MANY * len(group.explained) >= most:
        return 0
    known = identity_of(group.first)
    return 2 if _is_a_guess(group.first) or not known or known[0] in LOOKS else 1


def _standing(verdict: Verdict) -> tuple[bool, bool, int]:
    """Sort key: certain causes before guesses, causes before errors with a known place, and foundations first."""
    identity = identity_of(verdict)
    return _is_a_guess(verdict), bool(identity) and identity[0] == ranks.RANK_RAISED.id, _depth(verdict)


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
    if slip := next((cause for cause in verdict.diagnosis.causes if _is_a_slip(cause)), None):
        first = {identity_of(other) for other in failed if other.adapter == verdict.adapter and slip in _causes(other)}
        return _told_by(verdict, slip) if len(first) > 1 else verdict
    if not _tells_little(verdict):
        return _by_what_others_show(verdict, failed)
    if _leads_elsewhere(verdict, failed):
        return verdict
    others = {identity_of(other)[0] for other in failed if other.adapter == verdict.adapter and identity_of(other)}
    for cause in verdict.diagnosis.causes[1:]:
        if implied_by(cause.id) & others:
            return _told_by(verdict, cause, "likely")
    return verdict


def _by_what_others_show(verdict: Verdict, failed: Sequence[Verdict]) -> Verdict:
    """The verdict, led by the first of its equally likely causes that another failure shows, or that another's implies."""
    likely = [cause for cause in _causes(verdict) if cause.certainty == "likely"]
    if len(likely) < 2 or likely[0] != _causes(verdict)[0]:
        return verdict
    others = (other for other in failed if other is not verdict and other.adapter == verdict.adapter)
    first = {known[0] for other in others if (known := identity_of(other))}
    shown = first.union(*map(implied_by, first))
    return _told_by(verdict, next((cause for cause in likely if cause.id in shown), likely[0]))


def _leads_elsewhere(verdict: Verdict, failed: Sequence[Verdict]) -> bool:
    """Whether the guess about this failure is the known cause of another one."""
    known = identity_of(verdict)
    same = (other for other in failed if other.adapter == verdict.adapter and identity_of(other) == known)
    return bool(known) and any(not _is_a_guess(other) for other in same) and _is_a_guess(verdict)


def _is_a_slip(cause: Cause) -> bool:
    """An error in the program itself: at one place it is one mistake, even under different circumstances."""
    return cause.id == ranks.RANK_RAISED.id and cause.get("error") in _SLIPS


_SLIPS = frozenset(
    each.__name__
    for each in (AttributeError, ImportError, IndexError, KeyError, NameError, TypeError, UnboundLocalError)
)


def _under_its_condition(group: FailureGroup) -> FailureGroup:
    """The group under the condition that all its failures name, if their cause only describes the wrong value."""
    known = identity_of(group.first)
    if not known or known[0] not in LOOKS:
        return group
    named = [{cause.id for cause in verdict.diagnosis.causes} for verdict in group.verdicts if verdict.diagnosis]
    common = frozenset.intersection(CONDITIONS, *named)
    told = [_told_by(verdict, cause) for verdict in group.verdicts for cause in _causes(verdict) if cause.id in common]
    return replace(group, verdicts=tuple(told)) if len(told) == len(group.verdicts) else group


def _causes(verdict: Verdict) -> tuple[Cause, ...]:
    return verdict.diagnosis.causes if verdict.diagnosis is not None else ()


def _told_by(verdict: Verdict, cause: Cause, certainty: Certainty | None = None) -> Verdict:
    """The verdict with this cause first."""
    if verdict.diagnosis is None:
        return verdict
    others = tuple(each for each in verdict.diagnosis.causes if each != cause)
    return replace(
        verdict, diagnosis=replace(verdict.diagnosis, causes=(cause.but(certainty or cause.certainty), *others))
    )


def _with_symptoms(groups: Sequence[FailureGroup]) -> list[FailureGroup]:
    """The groups that no other group explains, each with the groups that it explains."""
    parents = _parents(groups)
    under: dict[int, list[FailureGroup]] = {place: [] for place in range(len(groups)) if place not in parents}
    for place in parents:
        root = place
        while root in parents:
            root = parents[root]
        under[root].append(groups[place])
    return [replace(groups[place], symptoms=tuple(symptoms)) for place, symptoms in under.items()]


def _parents(groups: Sequence[FailureGroup]) -> dict[int, int]:
    """The group that explains each group, for those that one explains. Of groups that explain each other in a circle, the
    largest is explained by none.

    A group that others explain only by family or parameter need not have the cause that it names. If that cause describes
    a value, it explains no other group. If it is a guess about a mechanism, it is kept if it alone explains known causes.
    """
    explaining = {place: found for place in range(len(groups)) if (found := _explaining(groups, place))}
    weak = {place for place in explaining if not any(_names(groups[each], groups[place]) for each in explaining[place])}
    descriptions = {place for place in weak if _only_describes(groups[place])}
    parents = {
        place: own[0]
        for place, found in explaining.items()
        if (own := [each for each in found if each not in descriptions])
    }
    circles: set[int] = set()
    for place in tuple(parents):
        way = [place]
        while (parent := parents.get(way[-1])) is not None and parent not in way:
            way.append(parent)
        if parent is not None:
            circles.update(circle := way[way.index(parent) :])
            del parents[min(circle, key=lambda each: (-len(groups[each].checks), each))]
    known = {
        found[0] for place, found in explaining.items() if len(found) == 1 and not _is_a_guess(groups[place].first)
    }
    kept = (weak & known) - descriptions - circles
    return {place: parent for place, parent in parents.items() if place not in kept}


def _explaining(groups: Sequence[FailureGroup], place: int) -> list[int]:
    """The groups that explain this one, the one of most checks first. None explains another that explains it."""
    found = [
        other
        for other in range(len(groups))
        if other != place
        and _explains(groups, other, place)
        and (_larger(groups, other, place) or not _explains(groups, place, other))
    ]
    return sorted(found, key=lambda other: (_depth(groups[other].first), -len(groups[other].checks)))


def _larger(groups: Sequence[FailureGroup], one: int, other: int) -> bool:
    """Whether group `one` has more checks than `other`, or as many and comes first."""
    sizes = len(groups[one].checks), len(groups[other].checks)
    return sizes[0] > sizes[1] or (sizes[0] == sizes[1] and one < other)


def _explains(groups: Sequence[FailureGroup], one: int, other: int) -> bool:
    """Whether the cause of a group implies another group, is a possible cause of most of its failures, or concerns one
    parameter whose wrong values the other group describes. A guess must be a possible cause of all failures, which
    describe values only. A cause that the other implies explains it in no other way.
    """
    cause, symptom = groups[one], groups[other]
    known, told = identity_of(cause.first), identity_of(symptom.first)
    if _is_known_to_imply(cause.first, symptom.first):
        return True
    guess = bool(told) and _is_a_guess(symptom.first)
    if _may_show_as(cause.first, symptom.first) and not (guess and _is_special(groups, cause)):
        return True
    if not known or not told or cause.first.adapter != symptom.first.adapter or known[0] in implied_by(told[0]):
        return False
    naming = _naming(cause, symptom)
    if _is_a_guess(cause.first):
        return told[0] in LOOKS and naming == len(symptom.verdicts)
    if 2 * naming > len(symptom.verdicts):
        return True
    in_one = len(cause.names) == 1 and cause.names == symptom.names != frozenset({""})
    before = _depth(cause.first) <= _depth(symptom.first) and len(cause.checks) > len(symptom.checks)
    return in_one and before and told[0] in LOOKS and known[0] not in LOOKS


def _only_describes(group: FailureGroup) -> bool:
    """Whether the cause describes a value or blames an earlier operation, so that it is no mechanism."""
    identity = identity_of(group.first)
    return bool(identity) and identity[0] in LOOKS | CONSEQUENCES


def _names(cause: FailureGroup, symptom: FailureGroup) -> bool:
    """Whether the cause implies the symptom's cause, or is a possible cause of most of its failures. Other explanations
    rest on circumstances: the family, or the parameter.
    """
    return _is_known_to_imply(cause.first, symptom.first) or 2 * _naming(cause, symptom) > len(symptom.verdicts)


def _naming(cause: FailureGroup, symptom: FailureGroup) -> int:
    """How many failures of the symptom have the cause as a further possible cause."""
    known = identity_of(cause.first)
    return sum(known in map(_identity, _causes(each)[1:]) for each in symptom.verdicts) if known else 0


def _is_special(groups: Sequence[FailureGroup], cause: FailureGroup) -> bool:
    """Whether one check alone shows the cause, guesses aside: it holds in special circumstances, and other checks'
    failures need not come from it.
    """
    shown = {name for each in groups if each is cause or _surely_explains(cause, each) for name in each.checks}
    return len(shown) == 1


def _surely_explains(cause: FailureGroup, symptom: FailureGroup) -> bool:
    guess = _is_a_guess(symptom.first)
    return _is_known_to_imply(cause.first, symptom.first) or (not guess and _may_show_as(cause.first, symptom.first))


def implies(cause: Verdict, symptom: Verdict) -> bool:
    """Whether the cause of one failure explains another failure."""
    return _is_known_to_imply(cause, symptom) or _may_show_as(cause, symptom)


def _is_known_to_imply(cause: Verdict, symptom: Verdict) -> bool:
    identity, told = identity_of(cause), identity_of(symptom)
    known = bool(identity) and bool(told) and identity != told and cause.adapter == symptom.adapter
    value = _known_value(symptom)
    return known and not implied_by(identity[0]).isdisjoint({told[0], value.id if value else told[0]})


def _may_show_as(cause: Verdict, symptom: Verdict) -> bool:
    """Whether a failure that tells little rests on the family of a known cause. A guess about the circumstances of a value
    that is known does not tell little.
    """
    identity = identity_of(cause)
    if not identity or cause.adapter != symptom.adapter or identity == identity_of(symptom):
        return False
    if _known_value(symptom) is not None:
        return False
    return not _tells_little(cause) and _tells_little(symptom) and _rests_on(symptom.family, cause.family)


def _rests_on(family: str, other: str) -> bool:
    """Whether a failure in the other family may show in this one. Families outside _FOUNDATIONS run Jobs of all kinds."""
    if family == other or other not in _FOUNDATIONS:
        return family == other
    if family not in _FOUNDATIONS:
        return True
    if family in _ON_COLLECTIVES and other not in ("ranks", "collectives"):
        return False
    return _FOUNDATIONS.index(other) < _FOUNDATIONS.index(family)


def _tells_little(verdict: Verdict) -> bool:
    """Whether the failure has no cause, only a guess, or a cause that blames an earlier operation."""
    if verdict.diagnosis is None or verdict.status == "hung":
        return False
    identity = identity_of(verdict)
    return _is_a_guess(verdict) or identity[0] in CONSEQUENCES


def _is_a_guess(verdict: Verdict) -> bool:
    """Whether the cause is only possible, or not known."""
    cause = verdict.diagnosis.cause if verdict.diagnosis is not None else None
    return cause is None or cause.certainty == "possible"


def _known_value(verdict: Verdict) -> Cause | None:
    """The known cause of a failure that is told by a guess about its circumstances."""
    known = (cause for cause in _causes(verdict) if cause.certainty == "likely")
    return next(known, None) if _is_a_guess(verdict) else None


def _depth(verdict: Verdict) -> int:
    return _FOUNDATIONS.index(verdict.family) if verdict.family in _FOUNDATIONS else len(_FOUNDATIONS)
