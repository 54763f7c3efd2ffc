"""Files that are written whole, so that at every moment a file is the old one or the new one; and files that cannot be read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


class UnreadableFile(Exception):
    """A file is not what it should be; the message says what is wrong and what to do."""


class UnwritableFile(Exception):
    """A file cannot be written; the message names it and says why."""


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` to write to, which is moved there in the end; its folder is made. UnwritableFile if that fails.

    What is no regular file, such as /dev/stdout, is written to as it is.
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
            with draft.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(place)
        finally:
            with suppress(OSError):
                draft.unlink()
    except OSError as error:
        raise UnwritableFile(f"{path} cannot be written: {error.strerror or error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a text in UTF-8; characters that it cannot encode (surrogates) become "?". UnwritableFile if it cannot be written."""
    with whole(path) as file:
        file.write(text.encode("utf-8", errors="replace"))
