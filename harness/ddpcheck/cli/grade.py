"""`ddpcheck grade`: a folder of submissions, each checked through one template, with points by family."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from ..grading.limited_command import Limits
from ..grading.points import Grade, Hints, Submission, grades, read_weights
from ..grading.submission_check import check_submission
from ..storage.files import write_atomically
from .console import console
from .exit_status import ExitStatus, status_of
from .number_options import COUNT, SECONDS
from .options import FILE, chosen_checks, chosen_profile, usage_errors
from .written_files import RequestedFiles

_INPUT = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("grade")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--template", required=True, type=_INPUT, help="The adapter: it imports from the module `submission`.")
@click.option(
    "-w", "--world-size", "world_sizes", default="1,2,3", show_default=True, help="World sizes, such as 1,2,4."
)
@chosen_checks
@chosen_profile("quick")
@click.option(
    "--weights", type=_INPUT, help="A TOML file with the points of each family under [points]. Default: 1 each."
)
@click.option(
    "--hints",
    default="family",
    show_default=True,
    type=click.Choice(["none", "family", "cause"]),
    help="How much detail the table shows about the first failure.",
)
@click.option(
    "--seconds", type=SECONDS, default=300.0, show_default=True, help="Time limit for each submission, in seconds."
)
@click.option(
    "--memory",
    type=COUNT,
    default=16_384,
    show_default=True,
    help="Limit on the address space of each process, in MiB.",
)
@click.option(
    "--output", type=COUNT, default=64, show_default=True, help="Limit on the size of each written file, in MiB."
)
@click.option("--csv", "csv_file", type=FILE, help="Write the table as CSV.")
def command(
    folder: Path,
    template: Path,
    world_sizes: str,
    patterns: tuple[str, ...],
    profile: str,
    weights: Path | None,
    hints: Hints,
    seconds: float,
    memory: int,
    output: int,
    csv_file: Path | None,
) -> None:
    """Check every Python file in FOLDER through one template, each in a process of its own.

    Students write no adapter. The template does `from submission import NAME` and defines `adapter`.

    A submission that loops, exits, prints without end, forks or hangs loses only its own points. This is no sandbox: a
    submission can do anything that you can do, so grade in a container.
    """
    out = console()
    with usage_errors():
        points = read_weights(weights) if weights is not None else {}
        files = sorted(path for path in folder.glob("*.py") if path.resolve() != template.resolve())
        if not files:
            raise ValueError(f"{folder} holds no submission; submissions are Python files, NAME.py")
    checks = (part for name in patterns for part in ("--check", name))
    options = ("--world-size", world_sizes, "--profile", profile, *checks)
    limits = Limits(seconds, memory << 20, output << 20)
    submissions: list[Submission] = []
    ended: ExitStatus | None = None
    try:
        for file in files:
            submissions.append(check_submission(file, template, options, limits))
            last = submissions[-1]
            out.print(escape(f"{last.name}: {last.seconds:.1f} s{f', {last.note}' * bool(last.note)}"), soft_wrap=True)
    except KeyboardInterrupt as interrupt:
        ended = status_of(interrupt)  # the submissions so far are graded, shown and saved
    found = grades(submissions, points, hints)
    asked = RequestedFiles()
    if found:
        out.print(_table(found))
    if found and csv_file is not None:
        asked.write(lambda: write_atomically(csv_file, as_csv(found)))
    if ended is not None:
        out.print(
            f"\ninterrupted: {len(files) - len(found)} of {len(files)} submissions were not checked", style="bold red"
        )
        sys.exit(asked.status(ended))
    unjudged = not any(submission.verdicts for submission in submissions)
    if unjudged:
        out.print("Error: no submission was judged; try the template with a correct submission", soft_wrap=True)
    sys.exit(asked.status(ExitStatus.UNUSABLE if unjudged else ExitStatus.WELL))


def _table(found: Sequence[Grade]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _columns(found):
        left = name in ("submission", "note", "hint")
        table.add_column(escape(name), overflow="fold", justify="left" if left else "right")
    for grade in found:
        numbers = (grade.total, *grade.points.values())
        cells = [grade.name, *(f"{number:.1f}" for number in numbers), f"{grade.seconds:.0f}", grade.note, grade.hint]
        table.add_row(*map(escape, cells))
    return table


def _columns(found: Sequence[Grade]) -> tuple[str, ...]:
    return "submission", "points", *found[0].points, "seconds", "note", "hint"


def as_csv(found: Sequence[Grade]) -> str:
    """The table as CSV. A cell that a spreadsheet would read as a formula gets a leading apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_columns(found))
    for grade in found:
        numbers = [f"{number:.3f}" for number in (grade.total, *grade.points.values())]
        writer.writerow([_inert(grade.name), *numbers, f"{grade.seconds:.1f}", _inert(grade.note), _inert(grade.hint)])
    return text.getvalue()


def _inert(cell: str) -> str:
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
