"""`ddpcheck suggest`: finds promises that an adapter does not make, and seems to keep."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from itertools import chain

import click
from rich.console import Console
from rich.markup import escape

from ..counted_nouns import counted
from ..launchers.fork_servers import ForkServers
from ..ranks.attaching import StartFailed
from ..running.candidate_promises import as_source, number_of_promises
from ..running.plan import RANKS_START, installed_checks
from ..running.suggested_promises import OutOfTime, PromiseSearch, SuggestedPromise
from .console import console
from .exit_status import status_of
from .number_options import FiniteNumber
from .options import chosen_deadline, chosen_sizes, usage_errors
from .search_progress import SearchProgress
from .verdict_table import symbol


@click.command("suggest")
@click.argument("adapter")
@chosen_sizes("Default: 2,3.")
@chosen_deadline(3.0)
@click.option(
    "--minutes",
    type=FiniteNumber(0, 1e6, min_open=True),
    help="Time limit for the whole run, in minutes.  [default: none]",
)
def command(adapter: str, world_sizes: tuple[int, ...] | None, deadline: float, minutes: float | None) -> None:
    """Try every promise that ADAPTER does not make, and print those that it seems to keep, ready to paste.

    Each promise is tried by its own checks, with few Jobs: run `ddpcheck check` with the promises that you make. Promises
    on which most checks depend come first. After Ctrl-C, or at the end of --minutes, the promises found so far are
    printed.

    Exit status: 0 success, even if --minutes left promises out; 1 the ranks do not start, or a check of a promise that
    ADAPTER makes already fails.
    """
    out = console()
    ends_at = math.inf if minutes is None else time.monotonic() + 60 * minutes
    with usage_errors(), ForkServers() as fork_servers:
        checks = tuple(check for check in installed_checks() if check is not RANKS_START)
        progress = SearchProgress(out)
        search = PromiseSearch(
            adapter,
            world_sizes or (2, 3),
            checks,
            fork_servers,
            deadline=deadline,
            begin=progress.begin,
            ends_at=ends_at,
        )
        promised = search.capabilities
        if not promised.facets:
            raise ValueError(
                f"{adapter} promises no facet: give Capabilities() a group, such as replica=ReplicaPromises()"
            )
        stopped, ended = "", None
        try:
            with progress, search:
                _search(out, search, progress)
        except OutOfTime:
            stopped = f"There was no time left (--minutes {minutes:g})"
        except KeyboardInterrupt as interrupt:
            ended, stopped = status_of(interrupt), "Interrupted"
        except StartFailed as error:
            raise click.ClickException(f"the ranks did not start: {error}\n{error.details}") from error
    variable = adapter.rpartition(":")[2] if ":" in adapter else "adapter"
    _show_end(out, search, as_source(promised, search.capabilities, variable), stopped)
    for name in sorted(search.broken):
        out.print(
            f"{symbol('failed')} {name} fails with all of them together: ddpcheck check {adapter} -c {name}",
            soft_wrap=True,
        )
    sys.exit(int(bool(search.broken)) if ended is None else ended)


def _search(out: Console, search: PromiseSearch, progress: SearchProgress) -> None:
    progress.stage("checks of its present promises")
    counted = Counter(verdict.status for verdict in search.baseline())
    failed = f"; {len(search.broken)} failed" if search.broken else ""
    out.print(f"with its present promises: {counted['passed']} checks passed{failed}", markup=False)
    out.print(
        f"\n[bold]{len(search.untried)} promises to try[/]; ddpcheck list capabilities explains them", soft_wrap=True
    )
    progress.stage("promises tried")
    shown: set[str] = set()
    for suggestion in chain(search.mending(), search.suggestions()):
        _show(out, suggestion, again=suggestion.sentence in shown)
        shown.add(suggestion.sentence)


def _show(out: Console, suggestion: SuggestedPromise, *, again: bool) -> None:
    """Show a promise that holds. again: its sentence was already shown."""
    sentence = "" if again else f": {escape(suggestion.sentence)}"
    partners = f", with {escape(', '.join(suggestion.partners))}" if suggestion.partners else ""
    first, more = ", ".join(suggestion.passed[:2]), len(suggestion.passed) - 2
    out.print(f"  {symbol('passed')} [bold]{escape(suggestion.candidate.text)}[/]{partners}{sentence}", soft_wrap=True)
    out.print(f"      passed: {first}" + f" and {more} more" * (more > 0), style="dim", soft_wrap=True)


def _needs(names: tuple[str, ...]) -> str:
    return f" (needs {' and '.join(names)})" if names else ""


def _show_end(out: Console, search: PromiseSearch, source: str, stopped: str) -> None:
    """Show promises that fail, those whose check did not end, those that need a missing method, those without a judge,
    and last the promises to paste. stopped: the reason of an early end.
    """
    failed = [each for each in search.failed.values() if not each.missing and not each.hung]
    if failed:
        out.print("\n[bold]promises that fail[/]")
    for name, why in sorted((each.candidate.text, each.failed) for each in failed):
        out.print(f"  {symbol('failed')} {escape(f'{name}: {why}')}", soft_wrap=True)
    if slow := [each for each in search.failed.values() if each.hung and not each.missing]:
        promises = counted(len(slow), "promise was", "promises were")
        names = ", ".join(sorted(f"{each.candidate.text} ({each.judge})" for each in slow))
        out.print(
            f"\n{promises} not judged, because a check did not end in {search.deadline:g} s: it hangs, or this machine is "
            f"too slow. Try --deadline {5 * search.deadline:g}: {names}",
            markup=False,
            soft_wrap=True,
        )
    if impossible := [each for each in search.failed.values() if each.missing]:
        promises = counted(len(impossible), "promise needs a method", "promises need methods")
        names = ", ".join(sorted(f"{each.candidate.text} ({each.missing})" for each in impossible))
        out.print(f"\n{promises} that the implementation does not have: {names}", markup=False, soft_wrap=True)
    if stopped:
        untried = ", ".join(each.text for each in search.untried)
        out.print(
            f"\n{stopped}: {len(search.untried)} promises were not tried, or only in part: {untried}",
            markup=False,
            soft_wrap=True,
        )
    elif search.unjudged:
        names = ", ".join(f"{each.text}{_needs(search.needed_with(each))}" for each in search.unjudged)
        out.print(
            f"\nnot judged, because each needs another promise, method or world size: {names}",
            markup=False,
            soft_wrap=True,
        )
    if not search.held:
        if not stopped:
            out.print("\nNo further promise seems to be kept.")
        elif search.failed:
            out.print("\nNone of the promises that were tried seems to be kept.")
        else:
            out.print("\nNo further promise was tried.")
        return
    held = number_of_promises(each.candidate for each in search.held)
    promises = counted(held, "more promise seems", "more promises seem")
    out.print(f"\n{promises} to be kept. Put those that you mean to keep below the adapter:\n")
    out.print(source, markup=False, soft_wrap=True)
