"""Promises that an adapter does not make and seems to keep: each is tried by the checks that judge it.

Some promises are judged only together with others (clipping needs an optimizer). The fewest that make a check apply are
tried together. Failed promises are tried again after each promise that holds.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, get_args

from ..checks import Check, unmet_need
from ..contract.capabilities import FACETS, GROUP_OF, GROUPS, SENTENCES, Capabilities
from ..contract.promises import promises_of
from ..launchers.fork_servers import ForkServers
from ..ranks.attaching import StartFailed
from ..session import Session
from ..verdict import Verdict
from .adapter_lookup import resolve
from .check_runner import run_check
from .guarded_import import IMPORT_SECONDS

_OPEN = (None, "undefined")
"""Default values of conventions that promise nothing."""
_LOOSENS = frozenset({"behind_loader"})
"""Promises that make checks demand less: suggested only if a failing check then passes."""


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


@dataclass(frozen=True, slots=True)
class SuggestedPromise:
    """A candidate, with the checks that passed, and the failed check with its message. Neither: no check judges it."""

    candidate: CandidatePromise
    passed: tuple[str, ...] = ()
    failed: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.passed) and not self.failed

    @property
    def sentence(self) -> str:
        return SENTENCES[self.candidate.name]


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


@dataclass
class PromiseSearch:
    """All candidates of one adapter, tried one after the other at these world sizes."""

    reference: str
    world_sizes: tuple[int, ...]
    checks: tuple[Check, ...]
    fork_servers: ForkServers
    effort: int = 8
    deadline: float = 3.0
    capabilities: Capabilities = field(init=False)
    asked: dict[str, set[str]] = field(init=False, default_factory=dict)
    broken: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.capabilities = resolve(self.reference, IMPORT_SECONDS)[0].capabilities

    def baseline(self) -> Iterator[Verdict]:
        """Verdicts of the adapter without changes. A check that fails already judges no promise, unless a promise mends
        it.
        """
        self.broken = set()
        for verdict in self._verdicts(self.capabilities, self.checks):
            if _bad(verdict):
                self.broken.add(verdict.check)
            yield verdict

    def mending(self) -> Iterator[SuggestedPromise]:
        """Promises that make failing checks pass, such as a promise to share no parameters."""
        for candidate in candidates(self.capabilities):
            judges = [check for check in self._that_asked(candidate) if check.name in self.broken]
            if not judges:
                continue
            suggestion = self._tried((candidate,), judges[:1])
            if suggestion.holds:
                self.capabilities = candidate.made(self.capabilities)
                self.broken -= set(suggestion.passed)
                self.broken &= {
                    each.check for each in self._verdicts(self.capabilities, self._named(self.broken)) if _bad(each)
                }
                yield suggestion

    def suggestions(self) -> Iterator[SuggestedPromise]:
        """First the promises that hold, as they are found; then those that do not; then those that no check judges.
        Call baseline() and mending() before.
        """
        self.checks = tuple(check for check in self.checks if check.name not in self.broken)
        failed: dict[CandidatePromise, SuggestedPromise] = {}
        tried: set[frozenset[CandidatePromise]] = set()
        while found := self._next(tried):
            together, judges = found
            outcome = self._tried(together, judges)
            suggestions = [replace(outcome, candidate=candidate) for candidate in together]
            if outcome.holds:
                yield from suggestions
                self.capabilities = _made(self.capabilities, together)
                failed.clear()
                tried.clear()  # these may hold now
            else:
                tried.add(together)
                failed |= {each.candidate: each for each in suggestions if each.candidate not in failed}
        yield from failed.values()
        yield from (
            SuggestedPromise(each)
            for each in candidates(self.capabilities)
            if each not in failed and each.name not in _LOOSENS
        )

    def _next(
        self, tried: Collection[frozenset[CandidatePromise]]
    ) -> tuple[frozenset[CandidatePromise], list[Check]] | None:
        """The fewest promises that make a check apply, with all such checks; finally those that no check needs."""
        left = [each for each in candidates(self.capabilities) if each.name not in _LOOSENS]
        bundles = {self._bundle(check, left) for check in self.checks} - {frozenset()} - set(tried)
        if bundles:
            together = min(bundles, key=lambda bundle: (len(bundle), sorted(each.text for each in bundle)))
            return together, self._enabled(together)
        alone = ((frozenset({each}), self._asking(each)) for each in left)
        return next(((each, judges) for each, judges in alone if judges and each not in tried), None)

    def _bundle(self, check: Check, left: Sequence[CandidatePromise]) -> frozenset[CandidatePromise]:
        """Promises that make a further check apply; empty if there are none."""
        chosen: dict[CandidatePromise, None] = {}
        for need in check.needs:
            made = _made(self.capabilities, chosen)
            if need.lacking(made, self.world_sizes[-1]) is None:
                continue
            enough = (each for each in left if need.lacking(each.made(made), self.world_sizes[-1]) is None)
            if (candidate := next(enough, None)) is None:
                return frozenset()
            chosen[candidate] = None
        return frozenset(chosen)

    def _tried(self, together: Collection[CandidatePromise], judges: Iterable[Check]) -> SuggestedPromise:
        """The verdict of the judging checks on promises that are tried together; named by the first promise."""
        first, passed = next(iter(together)), dict[str, None]()
        try:
            for verdict in self._verdicts(_made(self.capabilities, together), judges):
                if verdict.status == "passed":
                    passed[verdict.check] = None
                elif _bad(verdict):
                    return SuggestedPromise(first, tuple(passed), _said(verdict))
        except StartFailed as error:
            return SuggestedPromise(first, tuple(passed), f"the ranks did not start: {error.problems[0]}")
        return SuggestedPromise(first, tuple(passed))

    def _enabled(self, together: Collection[CandidatePromise]) -> list[Check]:
        """The checks that apply only with these promises."""
        made = _made(self.capabilities, together)
        return [
            check for check in self.checks if self._applies(check, made) and not self._applies(check, self.capabilities)
        ]

    def _asking(self, candidate: CandidatePromise) -> list[Check]:
        """The checks whose Jobs depend on this promise, if no check needs it."""
        if any(need.name in candidate.needs for check in self.checks for need in check.needs):
            return []
        return self._that_asked(candidate)

    def _that_asked(self, candidate: CandidatePromise) -> list[Check]:
        return [check for check in self.checks if candidate.name in self.asked.get(check.name, ())]

    def _named(self, names: Collection[str]) -> list[Check]:
        return [check for check in self.checks if check.name in names]

    def _applies(self, check: Check, capabilities: Capabilities) -> bool:
        return any(unmet_need(check, capabilities, size) is None for size in self.world_sizes)

    def _verdicts(self, capabilities: Capabilities, checks: Iterable[Check]) -> Iterator[Verdict]:
        for size in self.world_sizes:
            applicable = [check for check in checks if unmet_need(check, capabilities, size) is None]
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
            fork_servers=self.fork_servers,
            capabilities=capabilities,
        )


def _bad(verdict: Verdict) -> bool:
    return verdict.status not in ("passed", "skipped")


def _made(capabilities: Capabilities, together: Iterable[CandidatePromise]) -> Capabilities:
    for candidate in together:
        capabilities = candidate.made(capabilities)
    return capabilities


def _said(verdict: Verdict) -> str:
    if verdict.diagnosis is None:
        return f"{verdict.check} crashed: {verdict.reason.strip().splitlines()[-1]}"
    return f"{verdict.check}: {verdict.diagnosis.headline}"


def as_source(before: Capabilities, after: Capabilities) -> str:
    """The call of but() that turns `before` into `after`."""
    changed = []
    for group in GROUPS:
        for promise in promises_of(GROUPS[group]):
            for name in promise.metadata["members"] or (promise.name,):
                old, new = (each.value_of(name) for each in (before, after))
                if old != new:
                    changed.append(f"    {name}={_source(new)},")
    return "\n".join(("capabilities.but(", *changed, ")"))


def _source(value: Any) -> str:
    if isinstance(value, IntEnum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return "frozenset({" + ", ".join(f'"{each}"' for each in sorted(value)) + "})"
    return f'"{value}"' if isinstance(value, str) else repr(value)
