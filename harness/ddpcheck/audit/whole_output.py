"""The whole output of a script that fails, in a file of the working folder: evidence and page have its last lines only."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ..launchers.launcher import Output
from ..storage.files import UnwritableFile
from .request import Request, ScriptRun

SHOWN_LINES = 12
"""The most lines of the output that the page shows."""
_LONGEST_NAME = 120


def with_whole_output(request: Request, run: ScriptRun, written: Output) -> ScriptRun:
    """The run; if its script has failed and printed more than the page shows, with a sentence on the file of the whole
    output, which is then written.
    """
    if request.failures is None or not run.seen().failed:
        return run
    if written.is_whole_in_tail() and len(run.output.splitlines()) <= SHOWN_LINES:
        return run
    path = request.failures / f"audit-{_file_name(request)}-{run.name}.txt"
    try:
        written.save(path)
    except UnwritableFile as error:
        return replace(run, whole_output=f"the whole output of run {run.name!r} is not kept: {error}")
    return replace(run, whole_output=f"the whole output of run {run.name!r}: {path}")


def _file_name(request: Request) -> str:
    script = request.script[1] if request.script[0] == "-m" else Path(request.script[0]).name
    return re.sub(r"[^\w.-]", "_", script).encode()[-_LONGEST_NAME:].decode(errors="ignore")
