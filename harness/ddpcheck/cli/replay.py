"""`ddpcheck replay`: runs one failing Job again, and shows the results of every rank."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from ..counted_nouns import counted
from ..job import Job
from ..launchers.launcher import Launcher
from ..ranks.attaching import StartFailed
from ..running.adapter_lookup import names_file, resolve
from ..running.check_runner import run_check
from ..running.failure_files import FailureFiles, replay_command
from ..running.guarded_import import IMPORT_SECONDS
from ..running.launcher_lookup import installed_launchers, launcher_named
from ..running.plan import installed_checks
from ..running.unknown_names import require_known
from ..session import Session
from ..standalone import FailedCheck, NoScript, write_script
from ..storage.failing_jobs import Failure
from ..storage.replay import described
from .console import console, error_console
from .log_lines import LogLines
from .options import FILE, chosen_deadline, usage_errors
from .verdict_output import show_failure
from .verdict_table import symbol
from .written_files import RequestedFiles


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--adapter", help="Run the Job on this adapter. Default: the adapter that failed.")
@click.option(
    "--launcher",
    "launcher_name",
    type=click.Choice(sorted(installed_launchers())),
    help="The launcher. Default: the launcher with which the Job failed.",
)
@chosen_deadline(10.0)
@click.option(
    "--script",
    "script_file",
    type=FILE,
    help="Write a stand-alone Python script that shows a failure of collectives, samplers, metrics or scores.",
)
def command(
    file: Path, adapter: str | None, launcher_name: str | None, deadline: float, script_file: Path | None
) -> None:
    """Run the Job in FILE again; show the results of every rank, and the verdict of the check.

    `ddpcheck check` writes a FILE for each failing Job. An adapter at a path is run only if --adapter names it, or
    after you confirm. Exit status 1 if the check fails again.
    """
    out = console()
    with usage_errors():
        failure = Failure.load(file)
        if script_file is not None and failure.job.model is not None:
            raise ValueError(
                f"Jobs of replicas and training runs have no script: they are replayed by `{replay_command(file)}`"
            )
        reference = adapter or _trusted(failure.adapter, file)
        found, full = resolve(reference, IMPORT_SECONDS)
        checks = {check.name: check for check in installed_checks()}
        check = checks[require_known(failure.check, checks, "check")]
        started_by = launcher_name or failure.launcher  # the user starts attached ranks again
        launcher = launcher_named(started_by) if started_by in installed_launchers() else None
        job = failure.job
        session = Session(found, job.world_size, reference=full, deadline=deadline, launcher=launcher, replayed=job)
    out.print(
        f"{found.name}, {counted(failure.world_size, 'rank')}: the Job of {failure.check}", style="bold", markup=False
    )
    hung = f"(an operation counts as hung after {deadline:g} s)"
    with LogLines(error_console(), at_once=False) as lines, session:
        try:
            lines.tell(lambda seconds: f"  {seconds:.0f} s; now the Job runs {hung}")
            for line in described(failure.job, session.run(failure.job)):
                out.print(line, markup=False, soft_wrap=True)
            lines.tell(lambda seconds: f"  {seconds:.0f} s; now the Job runs again, for {check.name} {hung}")
            verdict = run_check(session, check)
        except StartFailed as error:
            raise click.ClickException(f"the ranks did not start: {error}\n{error.details}") from error
    out.print()
    if verdict.ok:
        out.print(f"{symbol(verdict.status)} {check.name} now passes with this Job: {check.sentence}", soft_wrap=True)
    else:
        show_failure(out, verdict, FailureFiles(file.parent).keep_text)
    files = RequestedFiles()
    if script_file is not None:
        told = FailedCheck(check.name, check.sentence, verdict.diagnosis)
        files.write(partial(_write_script, script_file, reference, failure.job, told, launcher))
        if not files.problems:
            out.print(f"stand-alone: python {script_file}", markup=False, soft_wrap=True)
    sys.exit(files.status(0 if verdict.ok else 1))


def _trusted(reference: str, file: Path) -> str:
    """The adapter that a file names. Code at a path may be anyone's: ValueError if the user does not confirm."""
    if names_file(reference) and not (
        sys.stdin.isatty() and click.confirm(f"{file} names code to run: {reference}. Run it?")
    ):
        raise ValueError(f"{file} names code to run, {reference}; to run it: {replay_command(file)}")
    return reference


def _write_script(path: Path, reference: str, job: Job, told: FailedCheck, launcher: Launcher | None) -> None:
    try:
        write_script(path, reference, job, told, launcher)
    except NoScript as error:
        raise click.ClickException(f"there is no stand-alone script for this Job: {error}") from error
