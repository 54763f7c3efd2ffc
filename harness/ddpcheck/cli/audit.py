"""`ddpcheck audit`: compares a training script's run on N ranks with a run of one process."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click
from rich.console import Console
from rich.markup import escape

from ..audit.evidence import SCHEMA, Evidence, RandomStreams
from ..audit.evidence_collection import conduct
from ..audit.page import page, write_markdown
from ..audit.request import Request
from ..audit.script_kinds import kind_of
from ..audit.verdicts import answer, verdicts_of
from ..job import MOST_RANKS
from ..relative_paths import relative
from ..running.adapter_lookup import is_adapter_file
from ..storage.junit import save_junit
from ..storage.results import Results
from .commands_again import given_options
from .console import at_terminal, console
from .number_options import SECONDS, FiniteNumber, WholeNumber
from .options import FILE, failures_folder, usage_errors
from .written_files import RequestedFiles

_SETTINGS = frozenset({"ranks", "steps", "seconds", "module", "no_gpu", "random_streams", "resume_check", "deadline"})
"""Parameters on which the answer depends."""


@click.command("audit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-n", "--ranks", type=WholeNumber(2, MOST_RANKS), default=2, show_default=True, help="Ranks of the real run."
)
@click.option(
    "--steps",
    type=WholeNumber(0, 1_000_000),
    default=6,
    show_default=True,
    help="Optimizer steps to compare with one process; 0 compares none.",
)
@click.option(
    "--seconds",
    type=FiniteNumber(0, 86_400),
    default=10.0,
    show_default=True,
    help="Seconds to keep recording after these steps.",
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option("--no-gpu", is_flag=True, help="Run a script for CUDA and NCCL on the CPU, with Gloo.")
@click.option(
    "--random-streams",
    type=click.Choice(get_args(RandomStreams)),
    default="different",
    show_default=True,
    help="Whether dropout and other random draws must differ between ranks or be equal; any: not judged.",
)
@click.option(
    "--resume-check",
    nargs=2,
    metavar="'ARGS' 'ARGS'",
    help="Arguments of a run that stops early, and of a run that resumes it. Compared with an uninterrupted run.",
)
@click.option(
    "--deadline",
    type=SECONDS,
    default=30.0,
    show_default=True,
    help="Seconds without progress until ranks count as hung.",
)
@click.option("--strict", is_flag=True, help="Exit status 2 also if gradients could not be compared with one process.")
@click.option("-v", "--verbose", is_flag=True, help="Show every law that held in a line of its own.")
@click.option("--json", "json_file", type=FILE, help="Write verdicts and evidence, which --judge reads.")
@click.option("--junit", "junit_file", type=FILE, help="Write JUnit XML.")
@click.option("--markdown", "markdown_file", type=FILE, help="Write the page as markdown.")
@click.option(
    "--judge", "judged", type=FILE, help="Judge the evidence in a --json file again, without running the script."
)
@failures_folder("Folder for the whole output of a script that fails.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the recorded journals in this folder."
)
def command(
    script: str | None,
    arguments: tuple[str, ...],
    ranks: int,
    steps: int,
    seconds: float,
    module: bool,
    no_gpu: bool,
    random_streams: RandomStreams,
    resume_check: tuple[str, str] | None,
    deadline: float,
    strict: bool,
    verbose: bool,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    judged: Path | None,
    failures: Path,
    keep: Path | None,
) -> None:
    """Run SCRIPT with its ARGUMENTS on several ranks, and again as one process; compare the two runs.

    SCRIPT is not changed. Put options of the audit before SCRIPT, and the script's own options after it.

    \b
    ddpcheck audit train.py --epochs 1 --batch-size 8
    ddpcheck audit -n 4 --steps 8 --no-gpu -- train.py --config small.toml

    Exit status: 0 no law is broken, 1 a law is broken, 2 nothing could be judged; with --strict also NO FINDING.
    """  # noqa: D301  # click wants the character, not the two that stand for it
    out = console()
    with usage_errors():
        if judged is not None:
            evidence = Evidence.load(judged)
        else:
            words = _words(script, arguments, module=module)
            interrupted, resumed = (tuple(shlex.split(given)) for given in resume_check or ("", ""))
            request = Request(
                words,
                ranks,
                steps,
                seconds=seconds,
                no_gpu=no_gpu,
                deadline=deadline,
                random_streams=random_streams,
                interrupted=interrupted,
                resumed=resumed if resume_check else None,
                failures=failures,
            )
            evidence = _run(out, request, keep)
    verdicts = verdicts_of(evidence)
    out.print(escape(page(evidence, verdicts, every=verbose)), soft_wrap=True)
    status, first = answer(evidence, verdicts, strict=strict)
    settings = {
        "audit": True,
        "answer": first,
        "ranks": evidence.ranks,
        "steps": evidence.steps,
        "no_gpu": no_gpu,
        "seconds": round(evidence.seconds, 1),
    }
    files = RequestedFiles()
    if json_file is not None:
        results = Results(tuple(verdicts), settings)
        files.write(lambda: results.save(json_file, evidence={"schema": SCHEMA, **evidence.to_plain()}))
    if junit_file is not None:
        files.write(lambda: save_junit(verdicts, junit_file))
    if markdown_file is not None:
        run_again = _again(script, arguments) if judged is None else ""
        files.write(lambda: write_markdown(evidence, verdicts, markdown_file, run_again))
    sys.exit(files.status(status))


def _again(script: str | None, arguments: Sequence[str]) -> str:
    """The command that repeats this audit, without its files."""
    options = given_options(click.get_current_context(), _SETTINGS)
    return shlex.join(["ddpcheck", "audit", *options, relative(script or ""), *arguments])


def _words(script: str | None, arguments: tuple[str, ...], *, module: bool) -> tuple[str, ...]:
    """The arguments of `python`. ValueError if the script does not exist."""
    if script is None:
        raise ValueError("name the script to audit: ddpcheck audit train.py ARGUMENTS")
    if not module and not Path(script).is_file():
        raise ValueError(f"there is no script {script}; options of the audit come before it")
    if not module and is_adapter_file(Path(script)):
        raise ValueError(f"{script} defines an adapter, and trains nothing; check it: ddpcheck check {script}:adapter")
    words = ("-m", script, *arguments) if module else (script, *arguments)
    reason = kind_of(words).unavailable()
    if reason:
        raise ValueError(reason)
    return words


def _run(out: Console, request: Request, keep: Path | None) -> Evidence:
    if not at_terminal(out):
        return conduct(request, keep)
    with out.status("starting") as status:
        return conduct(request, keep, status.update)
