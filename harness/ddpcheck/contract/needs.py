"""The needs of a check, as values: a misspelt need is an error at import.

    from ddpcheck.contract import needs

    @law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("sum"), needs.ranks(2))
    def check_...

`needs.replica` is the facet. `needs.replica.clipping` is a promise that must be made, a field or a member of a set.
`needs.replica.batch_norm("local")` must have this value, or is a set that must hold it.
`needs.world.determinism(Determinism.BETWEEN_CALLS)` is a level that must be reached. Unknown names are an
AttributeError or a ValueError when the module is imported.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, get_args, get_origin

from ..counted_nouns import counted
from .capabilities import GROUP_OF, GROUPS, SET_OF, Capabilities
from .promises import promises_of
from .unknown_promises import nearest

Lack = Callable[[Capabilities, int], str | None]


@dataclass(frozen=True)
class Need:
    """name: as `ddpcheck list checks` shows it. lacking: the reason why capabilities at a world size do not meet the
    need, or None. facet: the facet that the need concerns, or empty.
    """

    name: str
    lacking: Lack
    facet: str = ""

    def __str__(self) -> str:
        return self.name


class Promise(Need):
    """A promise that must be made. Called with a value: a promise that must have this value."""

    def __init__(self, group: str, name: str, hint: Any, known: frozenset[str] | None) -> None:
        def lacking(capabilities: Capabilities, world_size: int) -> str | None:
            return _unpromised(capabilities, group) or (
                None if capabilities.value_of(name) else f"{name} is not promised"
            )

        super().__init__(f"{group}.{name}", lacking, _facet(group))
        object.__setattr__(self, "_of", (group, name, hint, known))

    def __call__(self, value: str | IntEnum) -> Need:
        group, name, hint, known = self._of  # type: ignore[attr-defined]
        if hint is bool:
            raise ValueError(f"{self.name} is promised or not; it takes no value, such as {value!r}")
        values = known if known is not None else _values(hint)
        if values and value not in values:
            shown = ", ".join(sorted(map(str, values)))
            raise ValueError(f"{self.name} is never {value!r}; it may be {shown}")

        def lacking(capabilities: Capabilities, world_size: int) -> str | None:
            if absent := _unpromised(capabilities, group):
                return absent
            have = capabilities.value_of(name)
            if isinstance(have, frozenset):
                return None if value in have else f"{value} is not among the promised {name}"
            if isinstance(have, IntEnum) and isinstance(value, IntEnum):
                return None if have >= value else f"{name}={_word(value)} is not promised"
            return None if have == value else f"{name} is {have}, not {value}"

        return Need(f"{self.name}={_word(value)}", lacking, _facet(group))


class Facet(Need):
    """A facet that must be offered; its promises are its attributes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda capabilities, world_size: _without(capabilities, name), _facet(name))
        hints = typing.get_type_hints(GROUPS[name])
        found = {
            each.name: Promise(name, each.name, hints[each.name], each.metadata["known"])
            for each in promises_of(GROUPS[name])
            if not each.metadata["members"]
        }
        found |= {each: Promise(name, each, bool, None) for each in SET_OF if GROUP_OF[each] == name}
        object.__setattr__(self, "_promises", found)

    def __getattr__(self, name: str) -> Promise:
        found: dict[str, Promise] = object.__getattribute__(self, "_promises")
        if name in found:
            return found[name]
        raise AttributeError(f"{self.name} has no promise {name!r}{nearest(name, found)}")


def ranks(least: int = 1, most: int | None = None) -> Need:
    """At least `least` ranks, and at most `most`, if more ranks show nothing new."""

    def lacking(capabilities: Capabilities, world_size: int) -> str | None:
        if world_size < least:
            return f"needs at least {least} ranks"
        if most is not None and world_size > most:
            return f"more than {counted(most, 'rank')} would show nothing new"
        return None

    range_of_sizes = (
        f"{least} ranks or more" if most is None else f"{least} to {most} ranks" if least < most else f"{most} ranks"
    )
    return Need(range_of_sizes, lacking)


def any_float(capabilities: Capabilities, world_size: int) -> str | None:
    """Collectives carry some floating dtype."""
    has = any(dtype.startswith("float") for dtype in capabilities.collectives.dtypes)
    return _without(capabilities, "collectives") or (None if has else "no floating dtype is promised")


def _facet(group: str) -> str:
    """The facet of a group of promises; world promises concern all facets."""
    return group if group != "world" else ""


def _without(capabilities: Capabilities, group: str) -> str | None:
    return None if getattr(capabilities, group).offered else f"facet {group} is not promised"


def _unpromised(capabilities: Capabilities, group: str) -> str | None:
    """As _without, but promises of replicas also count if only a trainer makes them."""
    return None if group == "replica" and capabilities.trainer.offered else _without(capabilities, group)


def _values(hint: Any) -> frozenset[Any]:
    """The values that a promise of this type can take; empty for any value."""
    if get_origin(hint) is Literal:
        return frozenset(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return frozenset(hint)
    return frozenset().union(*(_values(each) for each in get_args(hint) if get_origin(hint) is not AbstractSet))


def _word(value: Any) -> str:
    return value.name.lower() if isinstance(value, IntEnum) else str(value)


world: Facet = Facet("world")
collectives: Facet = Facet("collectives")
sampler: Facet = Facet("sampler")
replica: Facet = Facet("replica")
metrics: Facet = Facet("metrics")
scores: Facet = Facet("scores")
trainer: Facet = Facet("trainer")
randomness: Facet = Facet("randomness")
floats: Need = Need("collectives.dtypes=any float", any_float, "collectives")
