"""Files of a failure: the failing Job, to replay it, a stand-alone script that shows the failure, and the whole text of
an error that is cut where it is printed.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ..launchers.launcher import Launcher
from ..standalone import write_beside
from ..storage.files import UnreadableFile, UnwritableFile, atomic_file
from ..storage.results import Failure, text_file, write_failure
from ..verdict import Verdict
from .adapter_lookup import names_file

LARGEST_TEXT = 64 << 20
"""Bytes of the largest text that a file keeps. Of a longer one it keeps the beginning and the end."""
_TEXTS_OF_A_RUN = 8 * LARGEST_TEXT
"""Bytes of all texts that one run keeps."""


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
        self._room = _TEXTS_OF_A_RUN

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

    def keep_text(self, verdict: Verdict) -> str:
        """Write the whole text of a failure, readable by this user only; returns a sentence that names the file."""
        text = verdict.text().encode("utf-8", errors="replace")
        size = min(len(text), LARGEST_TEXT)
        if size > self._room:
            return f"the whole text is not kept: this run has kept {_TEXTS_OF_A_RUN >> 20} MiB of other texts"
        path = text_file(self.folder, verdict)
        try:
            with atomic_file(path, 0o600) as file:
                file.writelines(_ends(text, LARGEST_TEXT))
        except UnwritableFile as error:
            return f"the whole text is not kept: {error}"
        self._room -= size
        return f"the whole text: {path}"


def _ends(text: bytes, most: int) -> tuple[bytes, ...]:
    """The text in UTF-8 with line feed; if it has more than `most` bytes, its two ends, with the number left out."""
    if len(text) <= most:
        return text, b"\n"
    first, last = text[: most // 2], text[-(most // 2) :]
    gap = f"\n... {len(text) - len(first) - len(last):,} bytes are left out ...\n"
    return _whole_characters(first), gap.encode(), _whole_characters(last), b"\n"


def _whole_characters(part: bytes) -> bytes:
    return part.decode("utf-8", errors="ignore").encode()
