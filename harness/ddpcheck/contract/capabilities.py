"""The promises of an implementation: one group for each facet that it offers.

A promise that is made is checked; a promise that is not made is a visible skip that names it. Checks ask for promises
by typed needs (needs.py), never for the name of an implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from .promise_sets import Member
from .promises import (
    ALL_SCORES,
    PLAIN_COLLECTIVES,
    PLAIN_ENGINE,
    PLAIN_SAMPLER,
    PLAIN_WORLD,
    CollectivePromises,
    MetricPromises,
    Promises,
    RandomnessPromises,
    ReplicaPromises,
    SamplerPromises,
    ScorePromises,
    TrainerPromises,
    WorldPromises,
    places,
    promises_of,
)
from .unknown_promises import nearest, refuse_unknown

P = TypeVar("P", bound=Promises)

CONTRACT = 1
"""The version of the contract. An adapter that was written for it keeps working in every later release of the same number."""


def _absent(group: type[P]) -> P:
    """The default of a facet: not offered until its promises are given."""
    made: P = field(default_factory=lambda: group(offered=False))
    return made


@dataclass(frozen=True)
class Capabilities:
    """The promises of one implementation. A group that is given is a facet that connect() hands out on every rank."""

    world: WorldPromises = field(default_factory=WorldPromises)
    collectives: CollectivePromises = _absent(CollectivePromises)
    sampler: SamplerPromises = _absent(SamplerPromises)
    replica: ReplicaPromises = _absent(ReplicaPromises)
    metrics: MetricPromises = _absent(MetricPromises)
    scores: ScorePromises = _absent(ScorePromises)
    trainer: TrainerPromises = _absent(TrainerPromises)
    randomness: RandomnessPromises = _absent(RandomnessPromises)

    def __new__(cls, *args: Any, **given: Any) -> Self:
        refuse_unknown(cls, given, {name: place for kind in GROUPS.values() for name, place in places(kind).items()})
        return super().__new__(cls)

    @property
    def facets(self) -> frozenset[str]:
        """The names of the offered facets."""
        return frozenset(name for name in FACETS if getattr(self, name).offered)

    def has(self, member: Member) -> bool:
        """Whether a promise of a set is made."""
        return bool(self.value_of(member))

    def value_of(self, name: str) -> Any:
        """The value of a promise by its own name; for a member of a set, whether the set holds it."""
        group = getattr(self, GROUP_OF[name])
        return name in getattr(group, SET_OF[name]) if name in SET_OF else getattr(group, name)

    def but(self, **changes: Any) -> Capabilities:
        """These capabilities with some promises changed, by their own names (batch_norm="local", no_sync=False) in any
        group or set, or whole groups (sampler=None removes a facet). TypeError with the nearest name for an unknown
        name.
        """
        made: dict[str, Any] = {}
        for name, value in changes.items():
            if name in GROUPS:
                made[name] = GROUPS[name](offered=False) if value is None else value
            elif name not in GROUP_OF:
                raise TypeError(f"there is no promise {name!r}{_held_by(name) or nearest(name, (*GROUPS, *GROUP_OF))}")
        inside = sorted(changes.keys() - GROUPS.keys(), key=SET_OF.__contains__)  # whole sets before their members
        for name in inside:
            group = made.get(GROUP_OF[name], getattr(self, GROUP_OF[name]))
            made[GROUP_OF[name]] = replace(group, **_change(group, name, changes[name]))
        return replace(self, **made)

    def without(self, names: Iterable[str]) -> Capabilities:
        """These capabilities without the promises of these names."""
        return self.but(**{name: _DEFAULTS[name] for name in names})

    def of_facets(self, *names: str) -> Capabilities:
        """These capabilities with these facets only. A facet that was not offered makes no promises."""
        chosen = {name: replace(getattr(self, name), offered=name in names) for name in FACETS}
        return replace(self, **chosen)

    def refuses(self, world_size: int) -> str | None:
        """The reason why the adapter cannot run at this world size; None if it can."""
        if self.world.world_sizes is None or world_size in self.world.world_sizes:
            return None
        return f"runs at world size {', '.join(map(str, sorted(self.world.world_sizes)))} only"


GROUPS: dict[str, type[Promises]] = {
    "world": WorldPromises,
    "collectives": CollectivePromises,
    "sampler": SamplerPromises,
    "replica": ReplicaPromises,
    "metrics": MetricPromises,
    "scores": ScorePromises,
    "trainer": TrainerPromises,
    "randomness": RandomnessPromises,
}
"""The class of each group of promises, by its field in Capabilities."""
FACETS = tuple(name for name in GROUPS if name != "world")
GROUP_OF = {name: group for group, kind in GROUPS.items() for name in places(kind) if name not in GROUPS}
"""The group of each promise, by the promise's name; names are unique over all groups."""
_FIELDS = tuple(each for kind in GROUPS.values() for each in promises_of(kind))
SET_OF: dict[str, str] = {str(member): each.name for each in _FIELDS for member in each.metadata["members"]}
"""The field of each promise that is a member of a set, by the promise's name."""
SENTENCES: dict[str, str] = {each.name: each.metadata["sentence"] for each in _FIELDS} | {
    str(member): member.sentence for each in _FIELDS for member in each.metadata["members"]
}
"""Each promise's sentence, by its name."""
_DEFAULTS: dict[str, Any] = {each.name: each.default for each in _FIELDS} | dict.fromkeys(SET_OF, False)


def _held_by(name: str) -> str:
    """The end of an error message: the promise that is a set of names with this one; empty if there is none."""
    held = (each.name for each in _FIELDS if name in (each.metadata["known"] or ()))
    return next((f"; it is one of the names in {field}: but({field}={{..., {name!r}}})" for field in held), "")


def _change(group: Any, name: str, value: Any) -> dict[str, Any]:
    """The field of the group that changes with a promise, and its new value."""
    if name not in SET_OF:
        return {name: value}
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    have = getattr(group, SET_OF[name])
    return {SET_OF[name]: have | {name} if value else have - {name}}


TYPICAL = Capabilities(
    PLAIN_WORLD,
    PLAIN_COLLECTIVES,
    PLAIN_SAMPLER,
    PLAIN_ENGINE,
    MetricPromises(),
    ALL_SCORES,
    TrainerPromises(),
    RandomnessPromises(),
)
"""Every facet with the promises that most implementations make: a base for adapters, as in
`TYPICAL.of_facets("replica").but(clipping=True)`.
"""
