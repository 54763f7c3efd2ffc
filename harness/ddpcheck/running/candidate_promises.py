"""Promises that an adapter could still make: their values, and the lines that add them to it."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, get_args

from ..contract.capabilities import FACETS, GROUP_OF, GROUPS, Capabilities
from ..contract.promises import promises_of

_OPEN = (None, "undefined")
"""Default values of conventions that promise nothing."""
_WIDTH = 88
"""The longest line that formatters of Python leave as it is, by default."""


@dataclass(frozen=True, slots=True)
class CandidatePromise:
    """A promise, and the value that is added to a set or assigned."""

    name: str
    value: Any

    @property
    def text(self) -> str:
        """The promise as a user writes it; of a set, only the added name."""
        if isinstance(self.value, IntEnum):
            return f"{self.name}={type(self.value).__name__}.{self.value.name}"
        return f"{self.name}={self.value!r}"

    @property
    def needs(self) -> tuple[str, str]:
        """The names of its needs in needs.py."""
        promise = f"{GROUP_OF[self.name]}.{self.name}"
        word = self.value.name.lower() if isinstance(self.value, IntEnum) else self.value
        return promise, f"{promise}={word}"

    def made(self, capabilities: Capabilities) -> Capabilities:
        """These capabilities with this promise."""
        have = capabilities.value_of(self.name)
        return capabilities.but(**{self.name: have | {self.value} if isinstance(have, frozenset) else self.value})


def candidates(capabilities: Capabilities) -> list[CandidatePromise]:
    """The promises that the adapter could still make, for the facets that it offers."""
    offered = [name for name in GROUPS if name not in FACETS or getattr(capabilities, name).offered]
    return [
        CandidatePromise(str(name), value)
        for group in offered
        for promise in promises_of(GROUPS[group])
        for name in promise.metadata["members"] or (promise.name,)
        for value in _values(group, name, promise.metadata["known"], capabilities.value_of(name))
    ]


def number_of_promises(made: Iterable[CandidatePromise]) -> int:
    """The number of these promises that lines state: a promise with levels is stated once, at its highest level."""
    return len({(each.name, None if isinstance(each.value, IntEnum) else each.value) for each in made})


def other_conventions(capabilities: Capabilities, names: Iterable[str]) -> list[CandidatePromise]:
    """The other values of these promises, where the default is a claim, too: a gradient is the mean or the sum."""
    return [
        CandidatePromise(name, value)
        for name in sorted(names)
        if isinstance(have := capabilities.value_of(name), str) and have not in _OPEN
        for value in _literals(typing.get_type_hints(GROUPS[GROUP_OF[name]])[name])
        if value not in (have, *_OPEN)
    ]


def _values(group: str, name: str, known: frozenset[str] | None, have: object) -> Sequence[Any]:
    if isinstance(have, IntEnum):
        return [rung for rung in type(have) if rung > have]
    if have is False:
        return [True]
    if isinstance(have, frozenset):
        return sorted((known or have) - have)
    if have not in _OPEN:
        return []
    hint = typing.get_type_hints(GROUPS[group])[name]
    return [value for value in _literals(hint) if isinstance(value, str) and value not in _OPEN]


def _literals(hint: Any) -> Iterator[Any]:
    """The values of a Literal, or of those in a union."""
    for argument in get_args(hint):
        if isinstance(argument, type) or get_args(argument):
            yield from _literals(argument)
        else:
            yield argument


def with_promises(capabilities: Capabilities, together: Iterable[CandidatePromise]) -> Capabilities:
    """These capabilities with all the promises."""
    for candidate in together:
        capabilities = candidate.made(capabilities)
    return capabilities


def as_source(before: Capabilities, after: Capabilities, adapter: str = "adapter") -> str:
    """Lines that turn an adapter with `before` into one with `after`. adapter: the name of its variable."""
    made = {}
    for group in GROUPS:
        for promise in promises_of(GROUPS[group]):
            for name in promise.metadata["members"] or (promise.name,):
                old, new = (each.value_of(name) for each in (before, after))
                if old != new:
                    made[name] = new
    changed = chain.from_iterable(_argument(name, value) for name, value in made.items())
    ladders = sorted({type(value).__name__ for value in made.values() if isinstance(value, IntEnum)})
    imports = ["from dataclasses import replace", f"from ddpcheck import {', '.join(ladders)}"]
    begin = (f"{adapter} = replace(", f"    {adapter},", f"    capabilities={adapter}.capabilities.but(")
    return "\n".join((*imports[: 1 + bool(ladders)], "", *begin, *changed, "    ),", ")"))


def _argument(name: str, value: Any) -> Iterator[str]:
    """A promise as an argument. A set that does not fit into a line has a line for each member."""
    line = f"        {name}={_source(value)},"
    if not isinstance(value, frozenset) or len(line) <= _WIDTH:
        yield line
        return
    yield f"        {name}=frozenset("
    yield "            {"
    yield from (f"                {_source(each)}," for each in sorted(value))
    yield "            }"
    yield "        ),"


def _source(value: Any) -> str:
    if isinstance(value, IntEnum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return "frozenset({" + ", ".join(map(_source, sorted(value))) + "})"
    return f'"{value}"' if isinstance(value, str) else repr(value)
