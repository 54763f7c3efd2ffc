"""Checks one submission: runs `ddpcheck check` with limits in a folder with the template and the submission."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from ..counted_nouns import counted
from ..printable_text import cut
from ..storage.files import UnreadableFile
from ..storage.results import Results
from .limited_command import CommandResult, Limits, run_limited
from .points import Submission

_MODULE = "submission.py"
"""The module that the template imports, as in `from submission import Ring`."""
_TEMPLATE = "adapter.py"
"""The template in a submission's folder."""


def check_submission(file: Path, template: Path, options: tuple[str, ...], limits: Limits) -> Submission:
    """Check a submission. options: further ones of `ddpcheck check`."""
    with tempfile.TemporaryDirectory(prefix="ddpcheck-grade-") as name:
        folder = Path(name)
        workspace = folder / "workspace"
        workspace.mkdir()
        shutil.copy(template, workspace / _TEMPLATE)
        shutil.copy(file, workspace / _MODULE)
        results = folder / "results.json"
        command = [sys.executable, "-m", "ddpcheck", "check", f"{_TEMPLATE}:adapter", "--quiet", *options]
        command += ["--json", str(results), "--failures", str(folder / "failures")]
        ended = run_limited(command, workspace, folder / "log.txt", limits)
        try:
            verdicts = Results.load(results).verdicts
        except UnreadableFile:
            note = [_note(ended, limits)]
            if ended.in_time:
                note.append(_last_line(folder / "log.txt", workspace, template.name))
            return Submission(file.stem, (), ended.seconds, "; ".join(filter(None, note)))
        return Submission(file.stem, verdicts, ended.seconds, _note(ended, limits))


def _note(ended: CommandResult, limits: Limits) -> str:
    parts = [] if ended.in_time else [f"it took more than {limits.seconds:g} s, and was ended"]
    if ended.in_time and ended.left_behind:
        parts.append(f"the submission left {counted(ended.left_behind, 'process', 'processes')} behind")
    if ended.in_time and ended.status not in (0, 1):
        parts.append(f"it ended with status {ended.status}")
    return "; ".join(parts)


def _last_line(log: Path, workspace: Path, template: str) -> str:
    """The last output line of a submission without a verdict, without its folder's name, and with the template's own name."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").replace(f"{workspace}/", "").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    last = said[-1].replace(f"importing {_TEMPLATE} ", f"importing {template} ") if said else ""
    return f"no verdict: {cut(last, 120)}" if last else "no verdict: the submission ended without output"
