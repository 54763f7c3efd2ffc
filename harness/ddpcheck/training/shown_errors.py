"""Errors of ranks in the length of a screen; the whole text of one that is cut is in a file."""

from __future__ import annotations

from ..printable_text import LONGEST_LINE, cut, printable
from ..storage.failures_folder import file_of_rank
from ..storage.files import UnwritableFile
from ..storage.long_texts import write_long_text

_FIRST, _LAST = 5, 45
"""Lines that are shown of a longer error: the last ones of a traceback say most."""


def shown_error(text: str, rank: int | None) -> str:
    """The printable text of an error; with a sentence on the file of the whole text if it is cut. rank: None if there is
    one only.
    """
    lines = printable(text).splitlines()
    shown = [cut(line, LONGEST_LINE) for line in lines]
    if len(shown) > _FIRST + _LAST + 1:
        shown[_FIRST:-_LAST] = [f"... {len(lines) - _FIRST - _LAST} more lines"]
    return "\n".join(shown if shown == lines else [*shown, _kept(text, rank)])


def _kept(text: str, rank: int | None) -> str:
    path = file_of_rank("train", rank)
    try:
        write_long_text(path, text.encode("utf-8", errors="replace"))
    except UnwritableFile as error:
        return f"the whole text is not kept: {error}"
    return f"the whole text: {path}"
