"""The verdicts of a run in files: JSON, JUnit XML, markdown and a badge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..running.check_runner import Settings
from ..running.failure_groups import group_failures
from ..storage.badge import save_badge
from ..storage.files import write_atomically
from ..storage.junit import save_junit
from ..storage.results import Results
from ..verdict import Verdict
from .written_files import RequestedFiles


def write_results(
    files: RequestedFiles,
    verdicts: Sequence[Verdict],
    settings: Settings,
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    badge_file: Path | None,
    run_again: Callable[[Verdict], str],
) -> None:
    """Write the verdicts in each form for which a file is named. run_again: the command for a failure."""
    results = Results(tuple(verdicts), _described(settings))
    if json_file is not None:
        causes = [group.to_plain() for group in group_failures(verdicts)]
        files.write(lambda: results.save(json_file, causes=causes))
    if junit_file is not None:
        files.write(lambda: save_junit(verdicts, junit_file))
    if markdown_file is not None:
        files.write(lambda: write_atomically(markdown_file, _conformance(results, run_again)))
    if badge_file is not None:
        files.write(lambda: save_badge(verdicts, badge_file))


def _described(settings: Settings) -> dict[str, Any]:
    """The settings of a run, as result files hold them."""
    return {
        "profile": settings.profile.name,
        "effort": settings.profile.effort,
        "level": str(settings.level),
        "seed": settings.random_seed,
        "deadline": settings.deadline,
        "launcher": settings.launcher.name if settings.launcher else "each adapter's own",
    }


def _conformance(results: Results, run_again: Callable[[Verdict], str]) -> str:
    from importlib.metadata import entry_points

    found = entry_points(group="ddpcheck.reports", name="conformance")
    if not found:
        raise click.ClickException("the report is not installed; install ddpcheck again")
    return str(next(iter(found)).load()(results, run_again))
