"""Files that are replaced as a whole, so that a reader sees the old or the new content; and errors of unreadable
files.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

LARGEST = 256 << 20
"""Bytes of the largest file that is read. The results of the largest runs have about 10 MB."""


class UnreadableFile(Exception):
    """A file cannot be read or is damaged; the message says why, and what to do."""


class UnwritableFile(Exception):
    """A file cannot be written; the message names it and says why."""


@contextmanager
def atomic_file(path: Path, permissions: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a file beside `path`, which replaces `path` at the end; folders are created. UnwritableFile on failure.

    permissions: of the new file, before the umask. A target that is not a regular file, such as /dev/stdout, is written directly.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as file:
                yield file
            return
        place = Path(os.path.realpath(path))  # a link stays a link
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.parent / f".ddpcheck-{secrets.token_hex(6)}.part"
        try:
            with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(place)
        finally:
            with suppress(OSError):
                draft.unlink()
    except OSError as error:
        raise UnwritableFile(f"{path} cannot be written: {error.strerror or error}") from error


def write_atomically(path: Path, text: str) -> None:
    """Write a text in UTF-8; unencodable characters (surrogates) become "?". UnwritableFile on failure."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8", errors="replace"))


def read_json(path: Path, advice: str = "") -> Any:
    """The data of a strict JSON file of at most LARGEST bytes. UnreadableFile with `advice` for any other file."""
    try:
        # opening a FIFO would wait for a writer
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is not a regular file")
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise ValueError(f"it has more than {LARGEST >> 20} MiB")
        return json.loads(raw.decode("utf-8"), parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        reason = "it is nested too deeply"
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    raise UnreadableFile(f"{path} cannot be read: {reason}" + (f"; {advice}" if advice else ""))


def read_record(path: Path, schemas: tuple[str, ...], advice: str) -> dict[str, Any]:
    """The data of a JSON file with one of these schemas, the present one first. UnreadableFile for any other file."""
    data = read_json(path, advice)
    found = data.get("schema") if isinstance(data, dict) else None
    if found not in schemas:
        raise UnreadableFile(f"{path} has schema {found!r}, but should have {schemas[0]!r}; {advice}")
    assert isinstance(data, dict)
    return data


def problem_of_data(error: Exception) -> str:
    """The words for an error of data that do not fit: of a missing field its name."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}, which is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds {text[:40]}, which is too large for a number")
    return number
