"""Files of a failure: the failing Job, to replay it, and a stand-alone script that shows the failure."""

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
    """The command that runs a Job again. It names the adapter if that is a file, because replay trusts no path from a
    Job's file.
    """
    try:
        reference = Failure.load(file).adapter
    except UnreadableFile:  # changed since it was written
        reference = ""
    words = ["ddpcheck", "replay", str(file)]
    return shlex.join([*words, "--adapter", reference] if names_file(reference) else words)


class FailureFiles:
    """The files of one run in `folder`. If the folder cannot be written, verdicts continue and `problem` holds the
    reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem = ""

    def write(
        self, reference: str, verdict: Verdict, launcher: Launcher | None = None
    ) -> tuple[Path | None, Path | None]:
        """The paths of the Job and the script; None where there is none. launcher: used instead of the adapter's."""
        try:
            file = write_failure(self.folder, reference, verdict, launcher.name if launcher else "")
            return file, write_beside(file, reference, verdict, launcher) if file else None
        except UnwritableFile as error:
            self.problem = self.problem or str(error)
            return None, None
