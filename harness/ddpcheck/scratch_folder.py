"""The folder of a Session's files on one host, which driver and ranks find by the session's secret."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path


def scratch_of(secret: str) -> Path:
    """Return the folder of a session's files on this host, whose name depends on the secret. It may not exist."""
    return temporary_folder() / f"ddpcheck-{hashlib.sha256(secret.encode()).hexdigest()[:24]}"


def temporary_folder() -> Path:
    """The folder of tempfile.gettempdir(), found without its trial file, which a rank that is killed would leave."""
    for place in (*(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")), "/tmp", "/var/tmp"):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK) and _has_room(place):  # noqa: PTH112
            return Path(place).absolute()
    return Path(tempfile.gettempdir())


def write_no_trial_file() -> None:
    """Tell tempfile the temporary folder. A process that is killed while tempfile looks for it leaves a trial file."""
    with suppress(OSError):  # if there is none, whatever needs it raises
        tempfile.tempdir = str(temporary_folder())


def _has_room(folder: str) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail > 0 and (status.f_favail > 0 or not status.f_files)  # some file systems count no files


def make_private(folder: Path) -> None:
    """Make a folder and its parents, where they are missing, for this user alone. Several ranks may do so at once."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def own_temporary_folder(scratch: Path) -> None:
    """Direct this process's temporary files to a folder inside `scratch`."""
    folder = scratch / "tmp"
    make_private(folder)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # forget the cached folder
