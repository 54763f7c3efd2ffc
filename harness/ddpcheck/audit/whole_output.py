"""The whole output of a script that fails, in a file of the working folder: evidence and page have its last lines only."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from ..storage.files import UnwritableFile, atomic_file
from .request import Request, ScriptRun

OUTPUT = "output.txt"
"""The file of a run's folder with all that its processes have printed."""
SHOWN_LINES = 12
"""The most lines of the output that the page shows."""
_LONGEST_NAME = 120


def with_whole_output(request: Request, run: ScriptRun) -> ScriptRun:
    """The run; if its script has failed and printed more than the page shows, with a sentence on the file of the whole output."""
    made = run.folder / OUTPUT
    if request.failures is None or not made.is_file() or not run.seen().failed:
        return run
    if made.stat().st_size <= len(run.output.encode()) + 1 and len(run.output.splitlines()) <= SHOWN_LINES:
        return run
    path = request.failures / f"audit-{_file_name(request)}-{run.name}.txt"
    try:
        with made.open("rb") as whole, atomic_file(path, 0o600) as file:
            shutil.copyfileobj(whole, file)
    except UnwritableFile as error:
        return replace(run, whole_output=f"the whole output of run {run.name!r} is not kept: {error}")
    return replace(run, whole_output=f"the whole output of run {run.name!r}: {path}")


def _file_name(request: Request) -> str:
    script = request.script[1] if request.script[0] == "-m" else Path(request.script[0]).name
    return re.sub(r"[^\w.-]", "_", script).encode()[-_LONGEST_NAME:].decode(errors="ignore")
