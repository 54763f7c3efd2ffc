"""Files of a failure, for every door: the failing Job, to be replayed, and a stand-alone script that shows it."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..launchers.launcher import Launcher
from ..standalone import write_beside
from ..storage.files import UnreadableFile, UnwritableFile
from ..storage.results import Failure, write_failure
from ..verdict import Verdict
from .adapter_lookup import names_file


def replay_command(file: Path) -> str:
    """The command that runs a Job again. It names an adapter at a path: replay runs none that only the Job's file names."""
    try:
        reference = Failure.load(file).adapter
    except UnreadableFile:  # somebody has changed it since it was written
        reference = ""
    words = ["ddpcheck", "replay", str(file)]
    return shlex.join([*words, "--adapter", reference] if names_file(reference) else words)


class FailureFiles:
    """The files of one run in `folder`. A folder that cannot be written to costs no verdict: `problem` says why."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem = ""

    def write(
        self, reference: str, verdict: Verdict, launcher: Launcher | None = None
    ) -> tuple[Path | None, Path | None]:
        """The paths of the Job and the script; None if there is none. launcher: overrides the adapter's."""
        try:
            file = write_failure(self.folder, reference, verdict, launcher.name if launcher else "")
            return file, write_beside(file, reference, verdict, launcher) if file else None
        except UnwritableFile as error:
            self.problem = self.problem or str(error)
            return None, None
