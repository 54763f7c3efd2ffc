"""Promises that an adapter does not make and seems to keep: each is tried by the checks that judge it.

Some promises are judged only together with others (clipping needs an optimizer). The fewest that make a check apply are
tried together; those that make most checks apply come first. A failed promise is tried again with other conventions that its
check has asked for, and few others (unused_gradient, for unused parameters), and at the end if its check has asked for a
promise that has held since.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from ..causes.ranks import METHOD_MISSING
from ..checks import Check, unmet_need
from ..contract import RendezvousRule
from ..contract.capabilities import SENTENCES, Capabilities
from ..contract.optional_methods import METHODS
from ..counted_nouns import counted
from ..launchers.fork_servers import ForkServers
from ..ranks.attaching import StartFailed
from ..session import Session
from ..verdict import Verdict
from .adapter_lookup import resolve
from .candidate_promises import CandidatePromise, candidates, other_conventions, with_promises
from .check_runner import run_check
from .guarded_import import IMPORT_SECONDS

_LOOSENS = frozenset({"behind_loader"})
"""Promises that make checks demand less: suggested only if a failing check then passes."""

_FEW = 3
"""The most checks besides its own that a convention may concern, to be tried with a failed promise."""


@dataclass(frozen=True, slots=True)
class SuggestedPromise:
    """A candidate, with the checks that passed, and the message of the failed check, its judge. Neither: no check judges
    it. partners: the promises that were tried together with it. missing: the method that its judge needs and the
    implementation does not have. hung: its judge did not end within the deadline, which is short here, so that a slow
    machine looks the same.
    """

    candidate: CandidatePromise
    passed: tuple[str, ...] = ()
    failed: str = ""
    judge: str = ""
    missing: str = ""
    hung: bool = False
    partners: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return bool(self.passed) and not self.failed

    @property
    def sentence(self) -> str:
        """The first sentence of the promise, without its full stop."""
        return SENTENCES[self.candidate.name].partition(". ")[0].removesuffix(".")


class OutOfTime(Exception):
    """The search has reached its time limit. The promises found so far are in the PromiseSearch."""


@dataclass
class PromiseSearch:
    """All candidates of one adapter, tried one after the other at these world sizes. A context: it keeps ranks running.

    begin: called with the number of things done, their total, and the text of the next. ends_at: monotonic seconds after
    which no check begins; then OutOfTime.
    """

    reference: str
    world_sizes: tuple[int, ...]
    checks: tuple[Check, ...]
    fork_servers: ForkServers
    effort: int = 4
    deadline: float = 3.0
    begin: Callable[[int, int, str], None] = lambda done, total, text: None
    ends_at: float = math.inf
    capabilities: Capabilities = field(init=False)
    asked: dict[str, set[str]] = field(init=False, default_factory=dict)
    broken: set[str] = field(init=False, default_factory=set)
    held: list[SuggestedPromise] = field(init=False, default_factory=list)
    failed: dict[CandidatePromise, SuggestedPromise] = field(init=False, default_factory=dict)
    _unjudged: set[CandidatePromise] = field(init=False, default_factory=set)
    _methodless: set[CandidatePromise] = field(init=False, default_factory=set)
    _sessions: dict[int, Session] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.capabilities = resolve(self.reference, IMPORT_SECONDS)[0].capabilities
        self._shares_host = self.capabilities.has(RendezvousRule.SHARES_HOST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(orderly=kind is None)

    @property
    def untried(self) -> list[CandidatePromise]:
        """The candidates that no check has judged yet, without those that no check can judge."""
        return [each for each in self._candidates() if each not in self.failed and each not in self._unjudged]

    @property
    def unjudged(self) -> list[CandidatePromise]:
        """The candidates that no check can judge. Known when suggestions() has ended."""
        return [each for each in self._candidates() if each in self._unjudged]

    def needed_with(self, candidate: CandidatePromise) -> tuple[str, ...]:
        """What a check of this promise needs besides, in the check that needs the least; empty if no check names it."""
        made = candidate.made(self.capabilities)
        lacks = [
            tuple(need.name for need in check.needs if need.lacking(made, size) is not None)
            for check in self.checks
            for size in reversed(self.world_sizes)
            if any(need.name in candidate.needs for need in check.needs)
        ]
        return min(lacks, key=len, default=())

    def baseline(self) -> Iterator[Verdict]:
        """Verdicts of the adapter without changes, at the smallest world size of several ranks. A check that fails already
        judges no promise, unless a promise mends it.
        """
        self.broken = set()
        size = min((each for each in self.world_sizes if each > 1), default=self.world_sizes[0])
        checks = [check for check in self.checks if unmet_need(check, self.capabilities, size) is None]
        for done, check in enumerate(checks):
            self.begin(done, len(checks), check.name)
            verdict = self._verdict(check, size, self.capabilities, brief=True)
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
                self._hold([suggestion])
                self.broken -= set(suggestion.passed)
                self.broken &= {
                    each.check for each in self._verdicts(self.capabilities, self._named(self.broken)) if _bad(each)
                }
                yield suggestion

    def suggestions(self) -> Iterator[SuggestedPromise]:
        """The promises that hold, as they are found; those that fail are in `failed`. Call baseline() and mending()
        before.
        """
        self.checks = tuple(check for check in self.checks if check.name not in self.broken)
        tried: dict[frozenset[CandidatePromise], str] = {}
        changed: dict[frozenset[CandidatePromise], set[str]] = {}
        while found := self._next(tried) or self._again(tried, changed):
            together, judges = found
            outcome = self._tried(together, judges)
            together, outcome = self._with_convention(together, judges, outcome)
            suggestions = [
                replace(outcome, candidate=each, partners=tuple(sorted(other.text for other in together - {each})))
                for each in together
            ]
            if outcome.holds:
                self._hold(suggestions)
                yield from suggestions
                for bundle in changed:
                    changed[bundle] |= {each.name for each in together}
                continue
            tried[together] = outcome.judge
            if outcome.missing:
                blamed = _needing(outcome.missing, together)
                self._methodless |= blamed
            else:
                blamed = together if outcome.failed else frozenset()
                changed[together] = set()
            self.failed |= {
                each.candidate: each for each in suggestions if each.candidate in blamed - self.failed.keys()
            }
            self._unjudged |= together - self.failed.keys()  # the checks could not tell
        self._unjudged |= {each for each in self._candidates() if each not in self.failed}

    def _with_convention(
        self, together: frozenset[CandidatePromise], judges: list[Check], outcome: SuggestedPromise
    ) -> tuple[frozenset[CandidatePromise], SuggestedPromise]:
        """A failed bundle and its outcome, or the bundle with a convention that few other checks ask for, if it holds in all."""
        judge = outcome.judge if outcome.failed and not outcome.missing and not outcome.hung else ""
        for convention in other_conventions(self.capabilities, self.asked.get(judge, set())):
            others = [check for check in self._that_asked(convention) if check not in judges]
            if len(others) > _FEW:
                continue
            wider = together | {convention}
            again = self._tried(wider, (*judges, *others))
            if again.holds:
                return wider, again
        return together, outcome

    def _again(
        self, tried: dict[frozenset[CandidatePromise], str], changed: dict[frozenset[CandidatePromise], set[str]]
    ) -> tuple[frozenset[CandidatePromise], list[Check]] | None:
        """A failed bundle whose check has asked for a promise that has held since, and so may hold now."""
        for bundle, names in changed.items():
            if names & self.asked.get(tried.get(bundle, ""), set()):
                del tried[bundle]
            names.clear()
        return self._next(tried)

    def _hold(self, suggestions: Sequence[SuggestedPromise]) -> None:
        self.held += suggestions
        self.capabilities = with_promises(self.capabilities, [each.candidate for each in suggestions])
        for each in suggestions:
            self.failed.pop(each.candidate, None)
            self._unjudged.discard(each.candidate)

    def _candidates(self) -> list[CandidatePromise]:
        return [each for each in candidates(self.capabilities) if each.name not in _LOOSENS]

    def _next(
        self, tried: Collection[frozenset[CandidatePromise]]
    ) -> tuple[frozenset[CandidatePromise], list[Check]] | None:
        """The fewest promises that make a check apply, and of these the ones that make most checks apply, with all such
        checks; finally those that no check needs.
        """
        left = [each for each in self._candidates() if each not in self._methodless]
        bundles = Counter(self._bundle(check, left) for check in self.checks)
        open_ones = [bundle for bundle in bundles if bundle and bundle not in tried]
        if open_ones:
            together = min(
                open_ones, key=lambda each: (len(each), -bundles[each], sorted(promise.text for promise in each))
            )
            return together, self._enabled(together)
        alone = ((frozenset({each}), self._asking(each)) for each in left)
        return next(((each, judges) for each, judges in alone if judges and each not in tried), None)

    def _bundle(self, check: Check, left: Sequence[CandidatePromise]) -> frozenset[CandidatePromise]:
        """Promises that make a further check apply, at the largest world size that it allows; empty if there are none."""
        found = (self._bundle_at(check, left, size) for size in reversed(self.world_sizes))
        return next(filter(None, found), frozenset())

    def _bundle_at(
        self, check: Check, left: Sequence[CandidatePromise], world_size: int
    ) -> frozenset[CandidatePromise]:
        chosen: dict[CandidatePromise, None] = {}
        for need in check.needs:
            made = with_promises(self.capabilities, chosen)
            if need.lacking(made, world_size) is None:
                continue
            enough = (each for each in left if need.lacking(each.made(made), world_size) is None)
            if (candidate := next(enough, None)) is None:
                return frozenset()
            chosen[candidate] = None
        return frozenset(chosen)

    def _tried(self, together: Collection[CandidatePromise], judges: Iterable[Check]) -> SuggestedPromise:
        """The verdict of the judging checks on promises that are tried together; named by the first promise."""
        first, passed = next(iter(together)), dict[str, None]()
        done = len(self.held) + len(self.failed)
        total, text = done + len(self.untried), " and ".join(each.text for each in together)
        self.begin(done, total, text)
        try:
            for count, verdict in enumerate(self._verdicts(with_promises(self.capabilities, together), judges), 1):
                self.begin(done, total, f"{text}, judged by {counted(count, 'check')} so far")
                if verdict.status == "passed":
                    passed[verdict.check] = None
                elif _bad(verdict):
                    hung = verdict.status == "hung"
                    return SuggestedPromise(
                        first, tuple(passed), _said(verdict), verdict.check, _missing(verdict), hung
                    )
        except StartFailed as error:
            return SuggestedPromise(first, tuple(passed), f"the ranks did not start: {error.problems[0]}")
        return SuggestedPromise(first, tuple(passed))

    def _enabled(self, together: Collection[CandidatePromise]) -> list[Check]:
        """The checks that apply only with these promises."""
        made = with_promises(self.capabilities, together)
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
            for check in checks:
                if unmet_need(check, capabilities, size) is None:
                    yield self._verdict(check, size, capabilities)

    def _verdict(self, check: Check, size: int, capabilities: Capabilities, *, brief: bool = False) -> Verdict:
        """Judge one check. OutOfTime if none may begin."""
        if time.monotonic() >= self.ends_at:
            raise OutOfTime
        session = self._session(size)
        session.brief = brief
        session.judge_promises(capabilities)
        verdict = run_check(session, check)
        self.asked.setdefault(check.name, set()).update(session.asked)
        return verdict

    def _session(self, size: int) -> Session:
        """Ranks that go on running. Those of other world sizes end first, unless the adapter promises to share its host."""
        if size in self._sessions:
            return self._sessions[size]
        if not self._shares_host:
            self._close(orderly=True)
        made = self._sessions[size] = Session(
            self.reference,
            size,
            deadline=self.deadline,
            effort=self.effort if size <= 2 else 1,
            shrinks=False,
            fork_servers=self.fork_servers,
        )
        return made

    def _close(self, *, orderly: bool) -> None:
        while self._sessions:
            self._sessions.popitem()[1].close(orderly=orderly)


def _bad(verdict: Verdict) -> bool:
    return verdict.status not in ("passed", "skipped")


def _missing(verdict: Verdict) -> str:
    """The method whose absence is the failure; empty if it has another cause."""
    cause = verdict.cause
    return str(cause.get("method")) if cause is not None and METHOD_MISSING.explains((cause,)) else ""


def _needing(method: str, together: frozenset[CandidatePromise]) -> frozenset[CandidatePromise]:
    """Those of these promises that need a method; all of them if none has it as its own."""
    return frozenset(each for each in together if method in METHODS.get(each.name, ())) or together


def _said(verdict: Verdict) -> str:
    if verdict.diagnosis is None:
        return f"{verdict.check} crashed: {verdict.reason.strip().splitlines()[-1]}"
    return f"{verdict.check}: {verdict.diagnosis.headline}"
