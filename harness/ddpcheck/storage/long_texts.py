"""Long texts in files that this user alone can read. Of a text beyond the limit a file keeps the beginning and the end."""

from __future__ import annotations

from mmap import mmap
from pathlib import Path

from .files import atomic_file

LARGEST_TEXT = 64 << 20
"""Bytes of the largest text that a file keeps whole."""


def write_long_text(path: Path, text: bytes | mmap) -> None:
    """Write a text in UTF-8, with a line feed at its end. UnwritableFile if the file cannot be written."""
    with atomic_file(path, 0o600) as file:
        file.writelines(_ends(text, LARGEST_TEXT))


def _ends(text: bytes | mmap, most: int) -> tuple[bytes, ...]:
    """The text; if it has more than `most` bytes, its two ends, with the number of bytes left out."""
    if len(text) <= most:
        return text[:], b"\n"
    first, last = text[: most // 2], text[-(most // 2) :]
    gap = f"\n... {len(text) - len(first) - len(last):,} bytes are left out ...\n"
    return _whole_characters(first), gap.encode(), _whole_characters(last), b"\n"


def _whole_characters(part: bytes) -> bytes:
    return part.decode("utf-8", errors="ignore").encode()
