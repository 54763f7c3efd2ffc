"""The promises of an implementation: one group for each facet that it offers.

A promise made is a promise checked; one not made is a visible skip that names it. Checks ask for promises by typed needs
(needs.py), and never for the name of an implementation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from .misspelt import refuse_unknown
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
        refuse_unknown(cls, given, {name: GROUPS[group] for name, group in GROUP_OF.items()})
        return super().__new__(cls)

    @property
    def facets(self) -> frozenset[str]:
        """The names of the facets that are handed out."""
        return frozenset(name for name in FACETS if getattr(self, name).offered)

    def but(self, **changes: Any) -> Capabilities:
        """These capabilities with some promises changed, by their own names (no_sync=False) in whichever group they stand, or
        whole groups (sampler=None takes a facet away). TypeError with the nearest name for one that does not exist.
        """
        made: dict[str, Any] = {}
        inside: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            if name in GROUPS:
                made[name] = GROUPS[name](offered=False) if value is None else value
            elif name in GROUP_OF:
                inside.setdefault(GROUP_OF[name], {})[name] = value
            else:
                near = get_close_matches(name, (*GROUPS, *GROUP_OF), 1)
                raise TypeError(f"there is no promise {name!r}" + f"; did you mean {near[0]!r}?" * bool(near))
        for group, values in inside.items():
            made[group] = replace(made.get(group, getattr(self, group)), **values)
        return replace(self, **made)

    def without(self, names: Iterable[str]) -> Capabilities:
        """These capabilities without the promises of these names."""
        defaults = {each.name: each.default for group in GROUPS.values() for each in promises_of(group)}
        return self.but(**{name: defaults[name] for name in names})

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


def promises_of(group: type[Promises]) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a group that are promises, in the order of the specification."""
    return tuple(each for each in dataclasses.fields(group) if each.name != "offered")


GROUP_OF = {each.name: name for name, group in GROUPS.items() for each in promises_of(group) if each.name not in GROUPS}
"""The group of each promise, by the promise's name; names are unique over all groups."""
SENTENCES: dict[str, str] = {
    each.name: each.metadata["sentence"] for group in GROUPS.values() for each in promises_of(group)
}
"""Each promise's sentence, by its name."""

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
