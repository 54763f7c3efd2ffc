"""The promises that a check reads, and the cases that it leaves out without them; its verdict names these cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Self

from .capabilities import GROUP_OF, GROUPS, Capabilities
from .needs import Need
from .promise_sets import Member
from .promises import Promises, promises_of

OPTIONAL_CALLS: dict[str, str] = {
    "subgroups": "sub-groups",
    "asynchronous": "asynchronous calls",
    "in_place": "in-place calls",
    "no_sync": "no_sync",
    "clipping": "clipping",
    "checkpoint": "saving and loading",
    "unfreezing": "freezing and unfreezing",
    "zeroes_gradients": "gradients set to zero",
    "several_replicas": "several replicas",
    "averaged_weights": "moving averages",
}
"""Promises without which a check makes fewer calls, and the cases left out. A convention, such as the weights of ranks,
leaves out nothing.
"""


def left_out(capabilities: Capabilities, asked: Collection[str]) -> tuple[str, ...]:
    """The cases that a check left out: it read these promises, and an offered facet does not make them."""
    absent = {name for name in OPTIONAL_CALLS if name in asked and not capabilities.value_of(name)}
    return tuple(sorted(OPTIONAL_CALLS[name] for name in absent if getattr(capabilities, GROUP_OF[name]).offered))


def withdrawn(needs: Iterable[Need], capabilities: Capabilities, lacks: Mapping[str, str], world_size: int) -> str:
    """The reason why one of these needs is not met: the ranks lack a promise that the capabilities make. Empty if all
    are met.
    """
    left = capabilities.without(lacks)
    for need in needs:
        reason = need.lacking(left, world_size)
        if reason is None:
            continue
        for name, why in lacks.items():
            if need.lacking(capabilities.without(set(lacks) - {name}), world_size) is None:
                return f"{reason}: {why}"
        return reason
    return ""


def watched(capabilities: Capabilities, note: Callable[[str], None]) -> Capabilities:
    """Equal capabilities that call `note` with the name of each promise when a check reads it."""
    made = {}
    for name in GROUPS:
        own = getattr(capabilities, name)
        values = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
        made[name] = _WATCHING[type(own)](**values)
        for promise in promises_of(type(own)):
            if members := promise.metadata["members"]:
                object.__setattr__(made[name], promise.name, _WatchedSet(values[promise.name], members, note))
        object.__setattr__(made[name], "_note", note)
    return Capabilities(**made)


class _WatchedSet(frozenset[Any]):
    """An equal set that reports which members are asked for: all, if it is read as a whole."""

    _members: tuple[Member, ...]
    _note: Callable[[str], None]

    def __new__(cls, made: Iterable[Any], members: tuple[Member, ...], note: Callable[[str], None]) -> Self:
        self = super().__new__(cls, made)
        self._members, self._note = members, note
        return self

    def __contains__(self, member: object) -> bool:
        self._note(str(member))
        return super().__contains__(member)

    def __iter__(self) -> Iterator[Any]:
        for member in self._members:
            self._note(str(member))
        return super().__iter__()


def _watching(group: type[Promises]) -> type[Any]:
    """A subclass of a group of promises that reports which of them are read."""
    promises = {promise.name for promise in promises_of(group)}

    def asked(self: Any, name: str) -> Any:
        if name in promises and "_note" in (own := object.__getattribute__(self, "__dict__")):
            own["_note"](name)
        return object.__getattribute__(self, name)

    return type(
        group.__name__, (group,), {"__getattribute__": asked, "__eq__": group.__eq__, "__hash__": group.__hash__}
    )


_WATCHING = {group: _watching(group) for group in GROUPS.values()}
