"""Failures while checks run: a cause is shown in full once, then in one line for a few more checks, then not at all.

The table at the end lists all failures, and result files keep them in full.
"""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from ..launchers.launcher import Launcher
from ..running.failure_files import FailureFiles
from ..running.failure_groups import headline_of, identity_of, implies
from ..verdict import Verdict
from .verdict_output import show_briefly, show_failure

_IN_FULL = 8
"""Causes of one adapter that are shown in full. Later causes get one line each."""
_SAME = 5
"""The number of checks with the same cause that get one line each."""


class Failures:
    """Receives each failure, and writes its files. quiet: each cause is shown once, and causes that follow from another are
    only counted.
    """

    def __init__(self, console: Console, files: FailureFiles, *, quiet: bool = False) -> None:
        self._console, self._files, self._quiet = console, files, quiet
        self._seen = Counter[tuple[str, tuple[str, ...]]]()
        self._in_full: list[Verdict] = []
        self._following = 0

    def show(self, verdict: Verdict, reference: str, launcher: Launcher | None) -> None:
        """reference: of the adapter. launcher: used instead of the adapter's."""
        job, script = self._files.write(reference, verdict, launcher)
        cause = verdict.adapter, identity_of(verdict) or (verdict.check, str(verdict.world_size))
        before = self._seen[cause]
        self._seen[cause] += 1
        if before > (0 if self._quiet else _SAME):
            return
        if before == _SAME:
            show_briefly(self._console, verdict, "same cause as above; the table shows all checks")
        elif before:
            show_briefly(self._console, verdict, "the same cause")
        elif cause_of_it := next((each for each in self._in_full if implies(each, verdict)), None):
            if self._quiet:
                self._following += 1
                return
            show_briefly(self._console, verdict, f"follows from a cause shown above: {headline_of(cause_of_it)}")
        elif sum(each.adapter == verdict.adapter for each in self._in_full) < _IN_FULL:
            self._in_full.append(verdict)
            show_failure(self._console, verdict, self._files.keep_text, job, script)
        else:
            show_briefly(self._console, verdict, headline_of(verdict))

    def show_number_of_following(self) -> None:
        """Show the number of failures that follow from causes shown before, if each was not shown."""
        if self._following:
            failures = "1 more failure follows" if self._following == 1 else f"{self._following} more failures follow"
            self._console.print(f"{failures} from causes shown above", soft_wrap=True)
