"""Files of a failure: the failing Job, to replay it, a stand-alone script that shows the failure, and the whole text of
an error that is cut where it is printed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ..launchers.launcher import Launcher
from ..relative_paths import relative
from ..standalone import FailedCheck, write_script
from ..storage import long_texts
from ..storage.failing_jobs import Failure, files_of_earlier_failure, text_file, write_failure
from ..storage.files import UnreadableFile, UnwritableFile
from ..storage.long_texts import write_long_text
from ..verdict import Verdict
from .adapter_lookup import names_file
from .plan import installed_checks

_TEXTS_OF_A_RUN = 8 * long_texts.LARGEST_TEXT
"""Bytes of all texts that one run keeps."""


def replay_command(file: Path) -> str:
    """The command that runs a Job again, from the working folder. It names the adapter if that is a file, because replay
    trusts no path from a Job's file.
    """
    try:
        reference = Failure.load(file).adapter
    except UnreadableFile:  # changed since it was written
        reference = ""
    words = ["ddpcheck", "replay", relative(file)]
    return shlex.join([*words, "--adapter", relative(reference)] if names_file(reference) else words)


def write_script_beside(file: Path, reference: str, verdict: Verdict, launcher: Launcher | None = None) -> Path | None:
    """Write the script of a failure beside the file of its Job; returns its path, or None if no script is possible."""
    if verdict.job is None:
        return None
    sentences = {check.name: check.sentence for check in installed_checks()}
    told = FailedCheck(verdict.check, sentences.get(verdict.check, ""), verdict.diagnosis)
    try:
        return write_script(file.with_suffix(".py"), reference, verdict.job, told, launcher)
    except Exception:  # a by-product: no error here may hide the failure itself
        return None


class FailureFiles:
    """The files of one run in `folder`. If the folder cannot be written, verdicts continue and `problem` holds the
    reason. outdated: files of earlier failures whose checks passed in this run; they are never deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: str = ""
        self.outdated: list[Path] = []
        self._room = _TEXTS_OF_A_RUN

    def write(
        self, reference: str, verdict: Verdict, launcher: Launcher | None = None
    ) -> tuple[Path | None, Path | None]:
        """The paths of the Job and the script; None where there is none. launcher: used instead of the adapter's."""
        try:
            file = write_failure(self.folder, reference, verdict, launcher.name if launcher else "")
            return file, write_script_beside(file, reference, verdict, launcher) if file else None
        except UnwritableFile as error:
            self.problem = self.problem or str(error)
            return None, None

    def note_passed(self, reference: str, verdict: Verdict) -> None:
        """Add the files of an earlier failure of this check to `outdated`, if the check passed."""
        if verdict.status == "passed":
            self.outdated += files_of_earlier_failure(self.folder, reference, verdict)

    def keep_text(self, verdict: Verdict) -> str:
        """Write the whole text of a failure, readable by this user only; returns a sentence that names the file."""
        text = verdict.text().encode("utf-8", errors="replace")
        size = min(len(text), long_texts.LARGEST_TEXT)
        if size > self._room:
            return f"the whole text is not kept: this run has kept {_TEXTS_OF_A_RUN >> 20} MiB of other texts"
        path = text_file(self.folder, verdict)
        try:
            write_long_text(path, text)
        except UnwritableFile as error:
            return f"the whole text is not kept: {error}"
        self._room -= size
        return f"the whole text: {path}"
