"""Groups of failures, and which groups are symptoms of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..verdict import Verdict
from .failure_causes import (
    depth,
    headline_of,
    identity_of,
    identity_of_cause,
    is_a_guess,
    is_known_to_imply,
    may_show_as,
    rests_on,
)
from .implied_causes import CONSEQUENCES, LOOKS, SLIGHT, implied_by
from .job_circumstances import RARE, circumstances_of, common_circumstances, common_layers


@dataclass(frozen=True)
class FailureGroup:
    """Verdicts of one adapter that seem to have one cause, in the order of the run; the simplest is first.

    symptoms: failures that this cause implies, grouped by their own causes.
    """

    verdicts: tuple[Verdict, ...]
    symptoms: tuple[FailureGroup, ...] = ()

    @property
    def first(self) -> Verdict:
        return min(self.verdicts, key=lambda verdict: (is_a_guess(verdict), depth(verdict)))

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


def with_symptoms(groups: Sequence[FailureGroup]) -> list[FailureGroup]:
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

    The cause of a group need not be what happened, unless the table of implied causes explains it. If it describes a value,
    it explains other descriptions and guesses only, and none if it is explained only by family or parameter. If it is a
    guess about a mechanism, explained only so, it is kept if it alone explains known causes.
    """
    explaining = {place: found for place in range(len(groups)) if (found := _explaining(groups, place))}
    implied, weak = set[int](), set[int]()
    for place, found in explaining.items():
        if any(is_known_to_imply(groups[each].first, groups[place].first) for each in found):
            implied.add(place)
        elif not any(_names(groups[each], groups[place]) for each in found):
            weak.add(place)
    vague = {place for place, group in enumerate(groups) if _only_describes(group)}
    guesses = {place for place, group in enumerate(groups) if is_a_guess(group.first)}
    parents = {}
    for place, found in explaining.items():
        empty = (explaining.keys() & vague) - implied if place not in vague | guesses else weak & vague
        if own := [each for each in found if each not in empty]:
            parents[place] = own[0]
    circles: set[int] = set()
    for place in tuple(parents):
        way = [place]
        while (parent := parents.get(way[-1])) is not None and parent not in way:
            way.append(parent)
        if parent is not None:
            circles.update(circle := way[way.index(parent) :])
            del parents[min(circle, key=lambda each: (-len(groups[each].checks), each))]
    known = {found[0] for place, found in explaining.items() if len(found) == 1 and place not in guesses}
    kept = (weak & known) - vague - circles
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
    return sorted(found, key=lambda other: (depth(groups[other].first), -len(groups[other].checks)))


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
    if is_known_to_imply(cause.first, symptom.first):
        needed = common_circumstances(cause.verdicts)
        return _in_circumstances(needed if is_a_guess(cause.first) else needed & RARE, symptom)
    guess = bool(told) and is_a_guess(symptom.first)
    if may_show_as(cause.first, symptom.first) and not (guess and _is_special(groups, cause)):
        return not told or _in_its_circumstances(cause, symptom)
    if _is_slight_beside(cause, symptom) or _is_unexplained_beside(cause, symptom):
        return True
    if not known or not told or cause.first.adapter != symptom.first.adapter or known[0] in implied_by(told[0]):
        return False
    if is_a_guess(cause.first):
        return told[0] in LOOKS and _naming(cause, symptom) == len(symptom.verdicts)
    if _names(cause, symptom):
        return True
    in_one = len(cause.names) == 1 and cause.names == symptom.names != frozenset({""})
    before = depth(cause.first) <= depth(symptom.first) and len(cause.checks) > len(symptom.checks)
    return in_one and before and told[0] in LOOKS and known[0] not in LOOKS


def _is_slight_beside(cause: FailureGroup, symptom: FailureGroup) -> bool:
    """Whether the symptom is an error, or a small difference, in one check, in the circumstances of a cause that more
    checks show.
    """
    known, told = identity_of(cause.first), identity_of(symptom.first)
    if not known or not told or cause.first.adapter != symptom.first.adapter or is_a_guess(cause.first):
        return False
    slight = told[0] in SLIGHT and known[0] not in SLIGHT and len(symptom.checks) == 1 < len(cause.checks)
    return slight and all(each.job is not None for each in symptom.verdicts) and _in_its_circumstances(cause, symptom)


def _is_unexplained_beside(guess: FailureGroup, symptom: FailureGroup) -> bool:
    """Whether the symptom has no cause, and its models have the special layers that those of a guess have in common."""
    if not is_a_guess(guess.first) or not identity_of(guess.first) or identity_of(symptom.first):
        return False
    near = guess.first.adapter == symptom.first.adapter and rests_on(symptom.first.family, guess.first.family)
    layers = common_layers(guess.verdicts)
    return near and bool(layers) and layers <= common_layers(symptom.verdicts)


def _in_its_circumstances(cause: FailureGroup, symptom: FailureGroup) -> bool:
    """Whether the Jobs of the symptom have all circumstances that the Jobs of the cause have in common."""
    return _in_circumstances(common_circumstances(cause.verdicts), symptom)


def _in_circumstances(needed: frozenset[str], symptom: FailureGroup) -> bool:
    return all(needed <= circumstances_of(each) for each in symptom.verdicts if each.job is not None)


def _only_describes(group: FailureGroup) -> bool:
    """Whether the cause describes a value or blames an earlier operation, so that it is no mechanism."""
    identity = identity_of(group.first)
    return bool(identity) and identity[0] in LOOKS | CONSEQUENCES


def _names(cause: FailureGroup, symptom: FailureGroup) -> bool:
    """Whether most failures of the symptom name the cause as a further possible cause."""
    return 2 * _naming(cause, symptom) > len(symptom.verdicts)


def _naming(cause: FailureGroup, symptom: FailureGroup) -> int:
    """How many failures of the symptom have the cause as a further possible cause."""
    known = identity_of(cause.first)
    return sum(known in map(identity_of_cause, each.causes[1:]) for each in symptom.verdicts) if known else 0


def _is_special(groups: Sequence[FailureGroup], cause: FailureGroup) -> bool:
    """Whether one check alone shows the cause, guesses aside: it holds in special circumstances, and other checks'
    failures need not come from it.
    """
    shown = {name for each in groups if each is cause or _surely_explains(cause, each) for name in each.checks}
    return len(shown) == 1


def _surely_explains(cause: FailureGroup, symptom: FailureGroup) -> bool:
    guess = is_a_guess(symptom.first)
    return is_known_to_imply(cause.first, symptom.first) or (not guess and may_show_as(cause.first, symptom.first))
