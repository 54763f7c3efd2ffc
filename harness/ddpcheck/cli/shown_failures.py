"""Failures while checks run: a cause is shown in full once, then in one line for a few more checks, then not at all.

The table at the end lists all failures, and result files keep them in full.
"""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from ..causes.ranks import RANK_RAISED
from ..counted_nouns import counted
from ..launchers.launcher import Launcher
from ..running.failure_causes import headline_of, identity_of, identity_of_cause, implies
from ..running.failure_files import FailureFiles
from ..running.failure_groups import by_what_others_show, led_by
from ..verdict import Verdict
from .verdict_output import show_briefly, show_failure

_IN_FULL = 8
"""Causes of one adapter that are shown in full. Later causes get one line each."""
_SAME = 5
"""The number of checks with the same cause that get one line each."""
_WITHOUT = 2
"""After this many failures by an error alone, special circumstances do not explain it."""


class ShownFailures:
    """Receives each failure, and writes its files. quiet: each cause is shown once; more failures with this cause, and those
    that may follow from it, are only counted.
    """

    def __init__(self, console: Console, files: FailureFiles, *, quiet: bool = False) -> None:
        self._console, self._files, self._quiet = console, files, quiet
        self._seen = Counter[tuple[str, tuple[str, ...]]]()
        self._in_full: list[Verdict] = []
        self._same = 0
        self._told: dict[tuple[str, tuple[str, ...]], str] = {}
        self._following = Counter[tuple[str, tuple[str, ...]]]()

    def show(self, verdict: Verdict, reference: str, launcher: Launcher | None) -> None:
        """reference: of the adapter. launcher: used instead of the adapter's."""
        job, script = self._files.write(reference, verdict, launcher)
        verdict = self._as_raised_before(by_what_others_show(verdict, self._in_full))
        cause = verdict.adapter, identity_of(verdict) or (verdict.check, str(verdict.world_size))
        before = self._seen[cause]
        self._seen[cause] += 1
        if self._quiet and before:
            self._count_another(cause)
            return
        if before > _SAME:
            return
        if before:
            told = self._told.get(cause) or _same_cause(verdict)
            more = "; the table shows all checks with it" if before == _SAME else ""
            show_briefly(self._console, verdict, told + more)
        elif cause_of_it := next((each for each in self._in_full if implies(each, verdict)), None):
            if self._quiet:
                self._following[cause] += 1
                return
            self._told[cause] = f"may follow from a cause shown above: {headline_of(cause_of_it)}"
            show_briefly(self._console, verdict, self._told[cause])
        elif sum(each.adapter == verdict.adapter for each in self._in_full) < _IN_FULL:
            self._in_full.append(verdict)
            show_failure(self._console, verdict, self._files.keep_text, job, script)
        else:
            show_briefly(self._console, verdict, headline_of(verdict))

    def _as_raised_before(self, verdict: Verdict) -> Verdict:
        """The verdict, led by its error if this has failed several checks without the circumstances of this one."""
        for cause in verdict.causes[1:]:
            seen = self._seen[verdict.adapter, identity_of_cause(cause)]
            if cause.id == RANK_RAISED.id and seen >= _WITHOUT:
                return led_by(verdict, cause)
        return verdict

    def show_numbers_of_omitted(self) -> None:
        """Show the numbers of failures that were only counted."""
        if self._same:
            failures = counted(self._same, "more failure has a cause", "more failures have causes")
            self._console.print(f"{failures} shown above", soft_wrap=True)
        if following := self._following.total():
            failures = counted(following, "more failure")
            self._console.print(f"{failures} may follow from causes shown above", soft_wrap=True)

    def _count_another(self, cause: tuple[str, tuple[str, ...]]) -> None:
        """Count one more failure with this cause, which is shown, or follows from one that is."""
        if cause in self._following:
            self._following[cause] += 1
        else:
            self._same += 1


def _same_cause(verdict: Verdict) -> str:
    return f"the same cause, {verdict.cause.id}" if verdict.cause else "the same error"
