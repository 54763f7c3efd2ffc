"""`ddpcheck gate ADAPTER --base REV`."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from ddpcheck.cli.console import at_terminal, console
from ddpcheck.cli.log_lines import LogLines
from ddpcheck.cli.number_options import RANKS, SEED, FiniteNumber
from ddpcheck.cli.options import FILE, usage_errors
from ddpcheck.cli.written_files import RequestedFiles
from ddpcheck.storage.files import UnwritableFile, write_atomically

from .compared_revision import Unusable
from .pytest_benchmark_files import save_sides
from .record import Record
from .result import Result, result_of
from .run import Wanted, gate
from .stages import Progress
from .summary import change, headline, markdown, milliseconds, said, tally_cells
from .trees import GitFailed

RAW = "gate.npz"


@click.command()
@click.argument("adapter", required=False)
@click.option("--base", help="The branch, tag or commit to compare with. Measured where head branched off.")
@click.option("--head", help="The branch, tag or commit to judge. [default: the working tree]")
@click.option("--benchmarks", help="Benchmarks, such as step,all_reduce:64KiB,barrier. [default: step,all_reduce:1MiB]")
@click.option("-w", "--world-size", default=2, show_default=True, type=RANKS, help="Number of ranks of each side.")
@click.option("--path", "paths", multiple=True, help="A folder of the repository to import from. Repeatable.")
@click.option("--setup", help="A shell command that prepares each side in a fresh virtual environment.")
@click.option("--base-python", default=sys.executable, help="The Python interpreter of base.")
@click.option("--head-python", default=sys.executable, help="The Python interpreter of head.")
@click.option(
    "--counts-only",
    is_flag=True,
    help="Compare only bytes, messages and collectives, which do not depend on the machine's load.",
)
@click.option("--accept-more", is_flag=True, help="Accept more bytes, messages or collectives.")
@click.option("--strict", is_flag=True, help="Exit with 2 if a benchmark could not be decided.")
@click.option(
    "--json", "folder", type=click.Path(file_okay=False, path_type=Path), help=f"Write base.json, head.json, {RAW}."
)
@click.option("--markdown", "page", type=FILE, help="Write a summary here.")
@click.option(
    "--minutes",
    type=FiniteNumber(0.1, 1440),
    help="Start no launch after this time. Open benchmarks are then undecided.",
)
@click.option("--seed", type=SEED, help="Seed of the order of turns. [default: random]")
@click.option("--replay", type=FILE, help=f"Decide again from a recorded {RAW}.")
def command(
    adapter: str | None,
    base: str | None,
    head: str | None,
    benchmarks: str | None,
    world_size: int,
    paths: tuple[str, ...],
    setup: str | None,
    base_python: str,
    head_python: str,
    counts_only: bool,
    accept_more: bool,
    strict: bool,
    folder: Path | None,
    page: Path | None,
    minutes: float | None,
    seed: int | None,
    replay: Path | None,
) -> None:
    """Is ADAPTER slower than at --base, or does it send more? Both trees are measured side by side, in turns.

    Exit status: 0 no regression, or none that could be shown; 1 a confirmed regression; 2 it could not be measured; 3 a
    collective gives wrong results; 130, 143 and 129 ended by Ctrl-C, SIGTERM and SIGHUP.
    """
    shown = console()
    with usage_errors():
        try:
            if replay is not None:
                record = Record.load_from(replay)
            else:
                if adapter is None or base is None:
                    raise click.UsageError("name an adapter and --base, or a file to --replay")
                wanted = Wanted(base, head, paths, setup, base_python, head_python)
                drawn = secrets.randbelow(1 << 31) if seed is None else seed
                with shown.status("") as status:
                    record = gate(
                        adapter,
                        wanted,
                        benchmarks,
                        world_size,
                        drawn,
                        Progress(
                            _steps(shown, status),
                            lambda text: shown.print(escape(text), style="dim", soft_wrap=True),
                            lambda measured: None if folder is None else _kept(measured, folder / RAW),
                            math.inf if minutes is None else time.monotonic() + 60 * minutes,
                        ),
                        not counts_only,
                    )
        except (Unusable, GitFailed) as error:
            raise click.UsageError(str(error)) from error
    result = result_of(record)
    _show(shown, record, result, strict, accept_more)
    text = markdown(record, result, strict=strict, more_accepted=accept_more)
    files = RequestedFiles()
    if page is not None:
        files.write(lambda: write_atomically(page, text))
    if folder is not None:
        files.write(lambda: record.save(folder / RAW))
        files.write(lambda: save_sides(record, result, folder, RAW))
    if record.ended is not None:
        shown.print("interrupted: this is the result of the launches so far", style="bold red")
        sys.exit(record.ended)
    sys.exit(files.status(result.status(strict=strict, more_accepted=accept_more)))


def _steps(shown: Console, status: Status) -> Callable[[str], None]:
    """Shows the present step: on a terminal in one place, in a log as a line now and then."""
    if at_terminal(shown):
        return lambda text: status.update(escape(text))
    lines = LogLines(shown)
    return lambda text: lines.tell(lambda seconds: f"{seconds:.0f} s: {text}")


def _kept(record: Record, path: Path) -> None:
    """Save after each launch; an error in writing is reported at the end."""
    with suppress(UnwritableFile):
        record.save(path)


def _show(shown: Console, record: Record, result: Result, strict: bool, accept_more: bool) -> None:
    if any(row.times is not None for row in result.rows):
        shown.print(_times(result))
    if counts := _counts(result):
        shown.print(counts)
    shown.print(escape(headline(record, result, strict=strict, more_accepted=accept_more)))


def _times(result: Result) -> Table:
    """A row for each benchmark."""
    table = Table(box=None, pad_edge=False)
    for name in ("benchmark", "base, ms", "head, ms", "change", "launches", "traffic", "verdict"):
        table.add_column(name, justify="right" if "ms" in name or name in ("change", "launches") else "left")
    for row in result.rows:
        traffic = ", ".join(dict.fromkeys(tally.judged for tally in row.tallies))
        cells = ["", "", "", "", traffic, ""]
        if row.times is not None and row.decision is not None:
            last = row.decision.last
            cells[:4] = [
                milliseconds(row.times.base),
                milliseconds(row.times.head),
                change(last),
                str(row.decision.launches),
            ]
            cells[5] = said(row.decision)
        table.add_row(row.benchmark.name, *map(escape, cells))
    return table


def _counts(result: Result) -> Table | None:
    """A row for each count: of all benchmarks if no times were measured, else of those that differ. None without rows."""
    table = Table(box=None, pad_edge=False)
    for name in ("benchmark", "counted", "base", "head", "traffic"):
        table.add_column(name, justify="right" if name in ("base", "head") else "left")
    for row in result.rows:
        for tally in row.tallies:
            if tally.base and (row.times is None or tally.judged != "equal" or tally.wasteful):
                *cells, _least, verdict = tally_cells(row.benchmark.name, row.benchmark.unit, tally)
                table.add_row(*map(escape, (*cells, verdict)))
            elif row.times is None:
                table.add_row(row.benchmark.name, "", "", "", tally.judged)
    return table if table.rows else None
