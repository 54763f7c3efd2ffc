"""A check: a plain function `check_<subject>_<verb>_<condition>(session)` with its family and the promises that it
needs.

    @law("collectives", needs.collectives.operations("all_reduce"))
    def check_all_reduce_sums_exactly(session: Session) -> None:
        '''All-reduce gives the exact sum of the ranks' arrays.'''

A check runs Jobs on the session, judges their Traces, and raises Finding if its law is broken. It reads capabilities,
never an implementation's name. A returned text is a note in the verdict; an Observation is shown to the user. The first
paragraph of the docstring is the law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from .check_levels import Level
from .contract import Capabilities
from .contract.needs import Need
from .docstrings_from_source import sentence as sentence_of
from .running.unknown_names import did_you_mean

if TYPE_CHECKING:
    from .session import Session

F = TypeVar("F", bound=Callable[..., str | None])


class Observation(str):
    """A fact that breaks no promise, returned by a check. It is shown beside the verdict and does not change it."""

    __slots__ = ()


@dataclass(frozen=True)
class Check:
    """A law, the promises that it needs, the function that checks it, and the lowest level at which it runs."""

    name: str
    family: str
    needs: tuple[Need, ...]
    sentence: str
    function: Callable[[Session], str | None]
    level: Level = Level.STANDARD


def law(family: str, *needs: Need, level: Level = Level.STANDARD) -> Callable[[F], F]:
    """Mark a function as a check of `family` that needs these capabilities and runs from this level on."""

    def mark(function: F) -> F:
        name = function.__name__
        if not name.startswith("check_"):
            raise ValueError(f"a check's name must begin with check_, got {name}")
        sentence = sentence_of(function)
        if not sentence:
            raise ValueError(f"{name} needs a docstring: its first paragraph is the law that it checks")
        function.check = Check(name, family, needs, sentence, function, level)  # type: ignore[attr-defined]
        return function

    return mark


def checks_of(*modules: ModuleType) -> tuple[Check, ...]:
    """All checks that these modules define, in the order of their source."""
    found: dict[str, Check] = {}
    for module in modules:
        for value in vars(module).values():
            check = getattr(value, "check", None)
            if isinstance(check, Check) and value.__module__ == module.__name__:
                found[check.name] = check
    return tuple(found.values())


def unmet_need(check: Check, capabilities: Capabilities, world_size: int) -> str | None:
    """The reason why this check does not apply: the first need that is not met."""
    return next((reason for need in check.needs if (reason := need.lacking(capabilities, world_size))), None)


def select(checks: Iterable[Check], patterns: Iterable[str]) -> tuple[Check, ...]:
    """The checks that match a pattern: a family's name selects the family, any other text every check whose name
    contains it. ValueError if a pattern matches no check.
    """
    every = tuple(checks)
    wanted = tuple(patterns)
    if not wanted:
        return every
    families = {check.family for check in every}
    found: set[Check] = set()
    for pattern in wanted:
        matching = {
            check for check in every if (check.family == pattern if pattern in families else pattern in check.name)
        }
        if not matching:
            known = f"families are {', '.join(sorted(families))}"
            close = did_you_mean(pattern, [*families, *(check.name for check in every)])
            raise ValueError(f"no check matches {pattern!r}; {close or known}; `ddpcheck list checks` shows all")
        found |= matching
    return tuple(check for check in every if check in found)
