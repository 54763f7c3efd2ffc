"""The promises of an implementation: one group for each facet that it offers.

A promise made is a promise checked; one not made is a visible skip that names it. Checks ask for promises by typed needs
(needs.py), and never for the name of an implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from .members import Member
from .misspelt import nearest, refuse_unknown
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
        """The names of the facets that are handed out."""
        return frozenset(name for name in FACETS if getattr(self, name).offered)

    def has(self, member: Member) -> bool:
        """Whether the set that a promise belongs to has it."""
        return bool(self.value_of(member))

    def value_of(self, name: str) -> Any:
        """The value of a promise, by its own name; of a member of a set: whether it is in the set."""
        value = getattr(getattr(self, GROUP_OF[name]), name if name not in MEMBERS else MEMBERS[name].field)
        return name in value if name in MEMBERS else value

    def but(self, **changes: Any) -> Capabilities:
        """These capabilities with some promises changed, by their own names (batch_norm="local", no_sync=False) in whichever
        group or set they stand, or whole groups (sampler=None takes a facet away). TypeError with the nearest name for one that
        does not exist.
        """
        made: dict[str, Any] = {}
        for name, value in changes.items():
            if name in GROUPS:
                made[name] = GROUPS[name](offered=False) if value is None else value
            elif name not in GROUP_OF:
                raise TypeError(f"there is no promise {name!r}{nearest(name, (*GROUPS, *GROUP_OF))}")
            elif name in MEMBERS and not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, got {value!r}")
        changed = sorted(changes.keys() - GROUPS.keys(), key=MEMBERS.__contains__)  # a whole set before its members
        for group in dict.fromkeys(GROUP_OF[name] for name in changed):
            own = made.get(group, getattr(self, group))
            values: dict[str, Any] = {}
            for name in changed:
                if GROUP_OF[name] == group:
                    field, value = _changed(name, changes[name], {**vars(own), **values})
                    values[field] = value
            made[group] = replace(own, **values)
        return replace(self, **made)

    def without(self, names: Iterable[str]) -> Capabilities:
        """These capabilities without the promises of these names."""
        return self.but(**{name: DEFAULTS[name] for name in names})

    def of_facets(self, *names: str) -> Capabilities:
        """These capabilities with the facets of these names only; a facet that was not offered promises nothing of its own."""
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


@dataclass(frozen=True, slots=True)
class Place:
    """A member of a set of promises, and the field of its group that holds the set."""

    member: Member
    field: str


MEMBERS: dict[str, Place] = {
    str(member): Place(member, each.name)
    for group in GROUPS.values()
    for each in promises_of(group)
    for member in each.metadata["members"]
}
"""The promises that stand in sets, by their names."""
_FIELDS = {each.name: each for group in GROUPS.values() for each in promises_of(group)}
SENTENCES: dict[str, str] = {
    **{name: each.metadata["sentence"] for name, each in _FIELDS.items()},
    **{name: place.member.sentence for name, place in MEMBERS.items()},
}
"""Each promise's sentence, by its name."""
DEFAULTS: dict[str, Any] = {**{name: each.default for name, each in _FIELDS.items()}, **dict.fromkeys(MEMBERS, False)}
"""The value of each promise that is not made, by its name."""


def _changed(name: str, value: Any, values: dict[str, Any]) -> tuple[str, Any]:
    """The field that holds a promise, and the field's new value."""
    if name not in MEMBERS:
        return name, value
    field, member = MEMBERS[name].field, MEMBERS[name].member
    return field, values[field] | {member} if value else values[field] - {member}


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
