"""Promises that an adapter does not make and seems to keep: each is tried by the checks that judge it.

A promise that no check judges with the adapter's own promises may be judged once another one is made (clipping needs an
optimizer), so all are tried again after each that holds.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, get_args

from ..checks import Check, missing
from ..contract.capabilities import FACETS, GROUP_OF, GROUPS, SENTENCES, Capabilities, promises_of
from ..launchers.templates import Templates
from ..ranks.attaching import StartFailed
from ..run import run_check
from ..session import Session
from ..verdict import Verdict
from .adapter_lookup import resolve

_OPEN = (None, "undefined")
"""Values of a convention that promise nothing."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A promise, and the value that is added to it, or that it takes."""

    name: str
    value: Any

    @property
    def text(self) -> str:
        """As a user writes it, with the names of a set shortened to the one that is added."""
        if isinstance(self.value, IntEnum):
            return f"{self.name}={type(self.value).__name__}.{self.value.name}"
        return f"{self.name}={self.value!r}"

    def made(self, capabilities: Capabilities) -> Capabilities:
        """These capabilities with this promise."""
        have = getattr(getattr(capabilities, GROUP_OF[self.name]), self.name)
        return capabilities.but(**{self.name: have | {self.value} if isinstance(have, frozenset) else self.value})


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A candidate, with the checks that passed with it, and the check that failed with what it said. Neither: none judges it."""

    candidate: Candidate
    passed: tuple[str, ...] = ()
    failed: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.passed) and not self.failed

    @property
    def sentence(self) -> str:
        return SENTENCES[self.candidate.name]


def candidates(capabilities: Capabilities) -> list[Candidate]:
    """What could be promised beside what is, of the facets that are handed out."""
    offered = [name for name in GROUPS if name not in FACETS or getattr(capabilities, name).offered]
    return [
        Candidate(promise.name, value)
        for group in offered
        for promise in promises_of(GROUPS[group])
        for value in _values(group, promise.name, getattr(getattr(capabilities, group), promise.name))
    ]


def _values(group: str, name: str, have: object) -> Sequence[Any]:
    known = next(each for each in promises_of(GROUPS[group]) if each.name == name).metadata["known"]
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


@dataclass
class Suggesting:
    """All candidates of one adapter, tried one after the other at these world sizes."""

    reference: str
    world_sizes: tuple[int, ...]
    checks: tuple[Check, ...]
    templates: Templates
    effort: int = 8
    deadline: float = 3.0
    capabilities: Capabilities = field(init=False)
    asked: dict[str, set[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.capabilities = resolve(self.reference)[0].capabilities

    def baseline(self) -> Iterator[Verdict]:
        """Verdicts of the adapter as it is. What fails already can speak neither for nor against a promise."""
        failed = set()
        for verdict in self._verdicts(self.capabilities, self.checks):
            if verdict.status not in ("passed", "skipped"):
                failed.add(verdict.check)
            yield verdict
        self.checks = tuple(check for check in self.checks if check.name not in failed)

    def suggestions(self) -> Iterator[Suggestion]:
        """One for each candidate, those that hold as they are found; baseline() goes before."""
        left = candidates(self.capabilities)
        for exact in (True, False):
            found = True
            while found:
                found = False
                for candidate in tuple(left):
                    judges = self._enabled(candidate) if exact else self._asking(candidate)
                    if candidate not in left or not judges:
                        continue
                    left.remove(candidate)
                    suggestion = self._tried(candidate, judges)
                    yield suggestion
                    if suggestion.holds:
                        found = True
                        self.capabilities = candidate.made(self.capabilities)
                        left = [each for each in left if each in candidates(self.capabilities)]
        yield from map(Suggestion, left)

    def _tried(self, candidate: Candidate, judges: Iterable[Check]) -> Suggestion:
        passed: dict[str, None] = {}
        try:
            for verdict in self._verdicts(candidate.made(self.capabilities), judges):
                if verdict.status == "passed":
                    passed[verdict.check] = None
                elif verdict.status != "skipped":
                    return Suggestion(candidate, tuple(passed), _said(verdict))
        except StartFailed as error:
            return Suggestion(candidate, tuple(passed), f"the ranks did not start: {error.problems[0]}")
        return Suggestion(candidate, tuple(passed))

    def _enabled(self, candidate: Candidate) -> list[Check]:
        """The checks that apply with this promise, and do not without it."""
        made = candidate.made(self.capabilities)
        return [
            check for check in self.checks if self._applies(check, made) and not self._applies(check, self.capabilities)
        ]

    def _asking(self, candidate: Candidate) -> list[Check]:
        """The checks whose Jobs depend on this promise."""
        return [check for check in self.checks if candidate.name in self.asked.get(check.name, ())]

    def _applies(self, check: Check, capabilities: Capabilities) -> bool:
        return any(missing(check, capabilities, size) is None for size in self.world_sizes)

    def _verdicts(self, capabilities: Capabilities, checks: Iterable[Check]) -> Iterator[Verdict]:
        for size in self.world_sizes:
            applicable = [check for check in checks if missing(check, capabilities, size) is None]
            if not applicable:
                continue
            with self._session(size, capabilities) as session:
                for check in applicable:
                    yield run_check(session, check)
                    self.asked.setdefault(check.name, set()).update(session.asked)

    def _session(self, size: int, capabilities: Capabilities) -> Session:
        return Session(
            self.reference,
            size,
            deadline=self.deadline,
            effort=self.effort,
            templates=self.templates,
            capabilities=capabilities,
        )


def _said(verdict: Verdict) -> str:
    if verdict.diagnosis is None:
        return f"{verdict.check} crashed: {verdict.reason.strip().splitlines()[-1]}"
    return f"{verdict.check}: {verdict.diagnosis.headline}"


def as_source(before: Capabilities, after: Capabilities) -> str:
    """The call of but() that leads from one to the other."""
    changed = []
    for group in GROUPS:
        for promise in promises_of(GROUPS[group]):
            old, new = (getattr(getattr(each, group), promise.name) for each in (before, after))
            if old != new:
                changed.append(f"    {promise.name}={_source(new)},")
    return "\n".join(("capabilities.but(", *changed, ")"))


def _source(value: Any) -> str:
    if isinstance(value, IntEnum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return "frozenset({" + ", ".join(f'"{each}"' for each in sorted(value)) + "})"
    return f'"{value}"' if isinstance(value, str) else repr(value)
