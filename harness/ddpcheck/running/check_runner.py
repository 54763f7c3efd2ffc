"""Runs checks; the command line, pytest and `check_adapter` all use it.

    for verdict in run_checks("torch_ddp", world_sizes=(1, 2)):
        print(verdict.check, verdict.status)

`plan` lists the items; `CheckRunner` judges them, on ranks that are started once. Each planned item gets a Verdict,
even if the ranks do not start.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Self

from ..check_levels import LEVELS, Level, features_beyond
from ..checks import Check, Observation, select
from ..contract import RendezvousRule
from ..contract.adapter import Adapter
from ..contract.asked_promises import left_out
from ..launchers.fork_servers import ForkServers
from ..launchers.launcher import Launcher
from ..printable_text import cut
from ..ranks.attaching import StartFailed
from ..refused_resources import refusal_cause
from ..session import Session
from ..verdict import CannotTell, Diagnosis, Finding, Refused, Status, Verdict
from .expected_failures import NOTHING_EXPECTED, ExpectedFailures
from .failure_files import FailureFiles
from .hang_budget import HangBudget
from .parallel_iterators import advance_in_threads
from .plan import RANKS_START, Item, installed_checks, plan
from .profiles import Profile, profile_named
from .repeated_causes import RepeatedCauses
from .start_diagnosis import start_diagnosis
from .unknown_names import require_known

_LONGEST_REASON = 400
"""Characters of the reason for which checks are skipped where the ranks did not start."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: seconds for one Job, the launcher (None: the adapter's own), and a seed for other draws (None: the
    usual ones).

    sessions: the number of world sizes or adapters at work at once. An adapter that does not promise to share its host
    has one at a time. most_hangs: the number of checks of a facet that may hang, each for a whole deadline; fewer in
    the next facets and world sizes. Checks after them are skipped (hang_budget.py). None for no limit. level: which
    checks run, and on which models.
    """

    profile: Profile = field(default_factory=lambda: profile_named("default"))
    deadline: float = 10.0
    random_seed: int | None = None
    launcher: Launcher | None = None
    sessions: int = 1
    most_hangs: int | None = 5
    level: Level = Level.STANDARD


def run_check(session: Session, check: Check, expected: ExpectedFailures | Mapping[str, str] | None = None) -> Verdict:
    """Run one check and return its Verdict. Only StartFailed is raised, since it is not a failure of the check."""
    if not isinstance(expected, ExpectedFailures):
        expected = ExpectedFailures(expected or {}, (*installed_checks(), check))
    began, jobs = time.monotonic(), session.jobs_run
    session.asked.clear()
    outcome = partial(Verdict, session.adapter.name, session.world_size, check.name, check.family)
    if check is not RANKS_START:
        if session.starts == 0:
            session.start()  # ranks may withdraw promises when they start
        if reason := session.withdraws(check.needs):
            return outcome("skipped", reason=reason)
    verdict = _call(check, session, outcome)
    jobs = session.jobs_run - jobs
    # a check that ran no Job has judged nothing
    if verdict.status == "passed" and not jobs and check is not RANKS_START:
        verdict = replace(verdict, status="skipped", reason="no Job ran: none of its Jobs fits the promises")
    not_covered = _not_covered(session) if verdict.status == "passed" else ()
    seconds = round(time.monotonic() - began, 4)
    return expected.applied(replace(verdict, seconds=seconds, jobs=jobs, not_covered=not_covered))


def _call(check: Check, session: Session, outcome: Callable[..., Verdict]) -> Verdict:
    """Call a check's function. Only StartFailed is raised. outcome: makes a Verdict from its status and further fields."""
    try:
        text = check.function(session) or ""
    except Finding as finding:
        return outcome("hung" if finding.hung else "failed", diagnosis=finding.diagnosis, job=finding.job)
    except StartFailed:
        raise
    except CannotTell as error:
        return outcome("skipped", reason=str(error))
    except Refused as error:
        return outcome("unknown", reason=str(error), diagnosis=error.diagnosis)
    except Exception as error:
        reason, causes = traceback.format_exc(), refusal_cause(error)
        headline = f"the system refused a resource to ddpcheck itself: {error}"
        diagnosis = Diagnosis(headline, causes, details=(reason,)) if causes else None
        return outcome("unknown", reason=reason, diagnosis=diagnosis)
    if isinstance(text, Observation):
        return outcome("passed", observation=str(text))
    return outcome("passed", reason=text)


def _not_covered(session: Session) -> tuple[str, ...]:
    """The cases that a passing check left out, each with the reason: a missing promise, or the level."""
    promised, asked = session.adapter.capabilities, session.asked
    features = features_beyond(promised, session.level) if "model_features" in asked else ()
    not_promised = (f"{case}, not promised" for case in left_out(promised, asked))
    return (*not_promised, *sorted(f"{name} models, not at level {session.level}" for name in features))


class CheckRunner:
    """One adapter at one world size. Its items are judged one after the other; the ranks start with the first item."""

    def __init__(
        self,
        adapter: Adapter,
        reference: str,
        world_size: int,
        settings: Settings,
        fork_servers: ForkServers | None = None,
        hangs: HangBudget | None = None,
        repeated: RepeatedCauses | None = None,
    ) -> None:
        self.lost: str = ""
        self.hangs: HangBudget = hangs or HangBudget(settings.most_hangs)
        self.repeated: RepeatedCauses = repeated or RepeatedCauses()
        self.full: bool = settings.level == Level.FULL
        self.deadline: float = settings.deadline
        self.session: Session = Session(
            adapter,
            world_size,
            reference=reference,
            deadline=settings.deadline,
            effort=settings.profile.draws(world_size),
            deep=settings.profile.deep,
            random_seed=settings.random_seed,
            launcher=settings.launcher,
            fork_servers=fork_servers,
            level=settings.level,
        )

    def verdict(self, item: Item, expected: ExpectedFailures = NOTHING_EXPECTED) -> Verdict:
        """Judge or skip an item. Ranks that do not start are one failure; all later items are skipped with that
        reason.
        """
        reason = item.skip or self.lost or self.hangs.leaves_out(item.check, item.world_size)
        if not reason and not self.session.starts:
            reason = self.lost = self.hangs.leaves_out_start(item.world_size)
        if reason:
            return item.verdict("skipped", reason=reason)
        self.session.deadline = self.hangs.seconds(item.check, self.deadline)
        shortened = "" if self.full else self.repeated.shortens(item.check)
        self.session.brief = bool(shortened)
        self.session.told = self.repeated.causes
        began = time.monotonic()
        try:
            verdict = run_check(self.session, item.check, expected)
        except StartFailed as error:
            return expected.applied(self._lose(item, error, time.monotonic() - began))
        if verdict.status == "hung":
            self.hangs.add(item.check, item.world_size)
        self.repeated.add(verdict)
        if shortened and verdict.status == "passed":
            return replace(verdict, reason="; ".join(filter(None, (verdict.reason, shortened))))
        return verdict

    def _lose(self, item: Item, error: StartFailed, seconds: float) -> Verdict:
        """Skip all later items. Returns the verdict on the item for which the ranks were to start."""
        if error.stuck:
            self.hangs.start_is_stuck(item.world_size)
        # the failure has the whole problem, which every later skip would repeat
        self.lost = cut(f"the ranks did not start: {error.problems[0]}", _LONGEST_REASON)
        parent, again = self.session.has_parent_process, self.session.starts > 1
        diagnosis = start_diagnosis(error, item.world_size, parent, again=again)
        status: Status = "unknown" if error.says_nothing else "failed"
        return item.verdict(status, seconds=round(seconds, 4), diagnosis=diagnosis)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.session.close(orderly=kind is None)


def run_items(
    items: Iterable[Item],
    settings: Settings,
    expected: ExpectedFailures,
    begin: Callable[[Item], None] = lambda item: None,
) -> Generator[Verdict, None, None]:
    """Yield a Verdict for each item; `begin` is called with each item before it runs. Ranks start only if a check will
    run, which may be check_ranks_start alone.

    Verdicts come in the order of the items, unless several sessions may run at once.
    """
    groups: dict[tuple[str, int], list[Item]] = {}
    for item in items:
        groups.setdefault((item.reference, item.world_size), []).append(item)
    hangs = {reference: HangBudget(settings.most_hangs) for reference, _ in groups}
    repeated = {reference: RepeatedCauses() for reference, _ in groups}
    running: set[Session] = set()

    def judged(lane: Iterable[list[Item]]) -> Iterator[Verdict]:
        for group in lane:
            others = [item for item in group if item.check is not RANKS_START]
            if others and all(item.skip for item in others):
                why = next((item.skip for item in group if item.skip), "")
                yield from (item.verdict("skipped", reason=item.skip or why) for item in group)
                continue
            reference = group[0].reference
            with CheckRunner(
                group[0].adapter,
                reference,
                group[0].world_size,
                settings,
                fork_servers=fork_servers,
                hangs=hangs[reference],
                repeated=repeated[reference],
            ) as ranks:
                running.add(ranks.session)
                for item in group:
                    begin(item)
                    yield ranks.verdict(item, expected)
                running.discard(ranks.session)

    def interrupt() -> None:
        for session in tuple(running):
            session.interrupt()

    with (
        ForkServers() as fork_servers,
        closing(
            advance_in_threads(
                [judged(lane) for lane in _lanes(groups, settings.sessions)], settings.sessions, interrupt
            )
        ) as verdicts,
    ):
        yield from verdicts


def _lanes(groups: Mapping[tuple[str, int], list[Item]], at_once: int) -> list[list[list[Item]]]:
    """Put groups that must run one after the other into one lane."""
    lanes: dict[tuple[str, int], list[list[Item]]] = {}
    for (reference, world_size), group in groups.items():
        shares = group[0].adapter.capabilities.has(RendezvousRule.SHARES_HOST)
        lanes.setdefault((reference, world_size if shares else 0), []).append(group)
    found = list(lanes.values())
    if at_once > 1:
        # two ranks show most faults with the shortest messages; then the longest groups, so that none runs alone at the
        # end
        found.sort(key=lambda lane: (lane[0][0].world_size != 2, -lane[0][0].world_size))
    return found


def run_checks(
    adapter: Adapter | str,
    world_sizes: Iterable[int] | None = None,
    checks: Iterable[str] = (),
    *,
    settings: Settings | None = None,
    expected_failures: Mapping[str, str] | None = None,
    failures: str | PathLike[str] | None = None,
) -> Iterator[Verdict]:
    """Check one adapter, world size by world size, and yield the verdicts.

    checks: names, families or parts of names; all if empty. failures: a folder for failing Jobs and their stand-alone
    scripts, written with each verdict; None writes none.
    """
    settings = settings or Settings()
    every = installed_checks()
    sizes = settings.profile.world_sizes if world_sizes is None else tuple(world_sizes)
    items = plan(adapter, sizes, select(every, checks), settings.launcher, settings.level)
    files = None if failures is None else FailureFiles(Path(failures))
    for verdict in run_items(items, settings, ExpectedFailures(expected_failures or {}, every)):
        if files is not None and not verdict.ok:
            files.write(items[0].reference, verdict, settings.launcher)
        yield verdict
    if files is not None and files.problem:
        warnings.warn(f"failing Jobs are not kept: {files.problem}", stacklevel=2)


def check_adapter(
    adapter: Adapter | str,
    world_sizes: Iterable[int] = (1, 2, 3, 4),
    checks: Iterable[str] | None = None,
    profile: str = "default",
    expected_failures: Mapping[str, str] | None = None,
    random_seed: int | None = None,
    level: str = "standard",
    failures: str | PathLike[str] | None = None,
) -> list[Verdict]:
    """Check an adapter; the verdicts of all checks at all world sizes. The adapter is right if `all(v.ok for v in
    ...)`.

    failures: a folder for failing Jobs and their stand-alone scripts, as with `ddpcheck check --failures`; default:
    none.
    """
    chosen = LEVELS[require_known(level, LEVELS, "level")]
    settings = Settings(profile_named(profile), random_seed=random_seed, level=chosen)
    return list(
        run_checks(
            adapter,
            world_sizes,
            checks or (),
            settings=settings,
            expected_failures=expected_failures,
            failures=failures,
        )
    )
