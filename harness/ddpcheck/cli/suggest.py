"""`ddpcheck suggest`: finds promises that an adapter does not make, and seems to keep."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain

import click
from rich.console import Console
from rich.markup import escape

from ..launchers.fork_servers import ForkServers
from ..ranks.attaching import StartFailed
from ..running.plan import RANKS_START, installed_checks
from ..running.suggested_promises import PromiseSearch, SuggestedPromise, as_source
from .number_options import SECONDS
from .number_options import world_sizes as sizes_option
from .options import console, usage_errors
from .verdict_output import symbol


@click.command("suggest")
@click.argument("adapter")
@click.option(
    "-w",
    "--world-size",
    "world_sizes",
    callback=sizes_option,
    help="World sizes, such as 1,2,4 or 1-4. Default: 2,3.",
)
@click.option(
    "--deadline", type=SECONDS, default=3.0, show_default=True, help="Seconds until an operation counts as hung."
)
def command(adapter: str, world_sizes: tuple[int, ...] | None, deadline: float) -> None:
    """Try every promise that ADAPTER does not make, and print those that it seems to keep, ready to paste.

    Each promise is tried by its own checks, with few Jobs: run `ddpcheck check` with the promises that you make. Exit
    status 1 if the ranks do not start, or if a check of a promise that ADAPTER makes already fails.
    """
    out = console()
    with usage_errors(), ForkServers() as fork_servers:
        checks = tuple(check for check in installed_checks() if check is not RANKS_START)
        suggesting = PromiseSearch(adapter, world_sizes or (2, 3), checks, fork_servers, deadline=deadline)
        promised = suggesting.capabilities
        if not promised.facets:
            raise ValueError(
                f"{adapter} promises no facet: give Capabilities() a group, such as replica=ReplicaPromises()"
            )
        found: list[SuggestedPromise] = []
        try:
            _baseline(out, suggesting)
            out.print("\n[bold]promises tried[/]")
            for suggestion in chain(suggesting.mending(), suggesting.suggestions()):
                _show(out, suggestion, again=any(suggestion.sentence == each.sentence for each in found))
                found.append(suggestion)
        except StartFailed as error:
            raise click.ClickException(f"the ranks did not start: {error}\n{error.details}") from error
    _end(out, found, as_source(promised, suggesting.capabilities))
    for name in sorted(suggesting.broken):
        out.print(
            f"{symbol('failed')} {name} fails with all of them together: ddpcheck check {adapter} -c {name}",
            soft_wrap=True,
        )
    sys.exit(int(bool(suggesting.broken)))


def _baseline(out: Console, suggesting: PromiseSearch) -> None:
    counted = Counter(verdict.status for verdict in suggesting.baseline())
    failed = f"; {len(suggesting.broken)} failed" if suggesting.broken else ""
    out.print(f"with its present promises: {counted['passed']} passed{failed}", markup=False)


def _show(out: Console, suggestion: SuggestedPromise, *, again: bool) -> None:
    """Show one promise. again: its sentence was already shown."""
    name = escape(suggestion.candidate.text)
    if suggestion.holds:
        sentence = "" if again else f": {escape(suggestion.sentence)}"
        shown = ", ".join(suggestion.passed[:2]) + (
            f" and {len(suggestion.passed) - 2} more" * (len(suggestion.passed) > 2)
        )
        out.print(f"  {symbol('passed')} [bold]{name}[/]{sentence}", soft_wrap=True)
        out.print(f"      passed: {shown}", style="dim", soft_wrap=True)
    elif suggestion.failed:
        out.print(f"  {symbol('failed')} {name}: {escape(suggestion.failed)}", soft_wrap=True)


def _end(out: Console, found: list[SuggestedPromise], source: str) -> None:
    held = sum(each.holds for each in found)
    unjudged = [each.candidate.text for each in found if not each.passed and not each.failed]
    if unjudged:
        out.print(
            f"\nnot judged, because each needs another promise: {', '.join(unjudged)}", markup=False, soft_wrap=True
        )
    if not held:
        out.print("\nNo further promise seems to be kept.")
        return
    out.print(
        f"\n{held} more promises seem to be kept. Append those that you mean to keep to the adapter's capabilities:\n"
    )
    out.print(source, markup=False, soft_wrap=True)
