"""`ddpcheck report`: makes a page, a summary and a text from result files, without measuring."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import click

from ddpcheck.cli.options import FILE
from ddpcheck.storage.files import UnreadableFile, UnwritableFile, write_atomically

from .document import page, plain, summary
from .result_files import read


@click.command("report")
@click.argument("files", nargs=-1, type=FILE)
@click.option(
    "-o",
    "--out",
    type=FILE,
    help="The page; plots/, a summary and a text are written beside it.  [default: reports/scaling.md; --html: FILE.html]",
)
@click.option(
    "--html", "as_html", is_flag=True, help="Make one HTML page from a file of `check --json` or `audit --json`."
)
def command(files: tuple[Path, ...], out: Path | None, as_html: bool) -> None:
    """Make a report of FILES that `ddpcheck bench --json` wrote, or with --html of verdicts.

    Writes three files: OUT with figures in plots/ beside it, OUT-summary.md without images for a comment on a pull
    request, and OUT.txt. Equal files give equal reports.

    With --html, writes one self-contained file: the verdict, failures by cause, a matrix to filter, and figures.
    """
    if as_html:
        _as_html(files, out)
        return
    out = out or Path("reports/scaling.md")
    if not files:
        raise click.UsageError("name result files; write one with: ddpcheck bench ADAPTERS --json FILE")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("figures need matplotlib; install it with: pip install 'ddpcheck[report]'")
    from .scaling import blocks

    try:
        measured = read(files)
    except UnreadableFile as error:
        raise click.UsageError(str(error)) from error
    targets = out, out.with_name(f"{out.stem}-summary.md"), out.with_suffix(".txt")
    _keep(files, targets)
    made = blocks(measured, out.parent / "plots", [str(file) for file in files], str(out))
    for path, text in zip(targets, (page(made), summary(made), plain(made)), strict=True):
        write_atomically(path, text)
        click.echo(f"wrote {path}")


def _as_html(files: tuple[Path, ...], out: Path | None) -> None:
    if len(files) != 1:
        raise click.UsageError("--html needs exactly one file; write one with: ddpcheck check ADAPTER --json FILE")
    from ddpcheck.storage.results import Results

    from .result_files import holds_measurements
    from .web.page import page as web_page

    (file,) = files
    target = out or file.with_suffix(".html")
    _keep(files, [target])
    try:
        if holds_measurements(file):
            raise click.UsageError(f"{file} holds measurements, not verdicts; show them with: ddpcheck report {file}")
        write_atomically(target, web_page(Results.load(file)))
    except (UnreadableFile, UnwritableFile) as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"wrote {target}")


def _keep(files: Iterable[Path], targets: Iterable[Path]) -> None:
    """UsageError if a target is one of the input files."""
    inputs = {file.resolve() for file in files}
    for target in targets:
        if target.resolve() in inputs:
            raise click.UsageError(f"--out would overwrite the input file {target}; name another page")
