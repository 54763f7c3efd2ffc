"""Paths under the working folder, relative to it: a page or a command is also read where the folder has another place."""

from __future__ import annotations

import re
from pathlib import Path


def relative(path: Path | str) -> str:
    """The path, or the reference that begins with one, relative to the working folder if it lies under that; else as it
    is.
    """
    path, here = Path(path), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def with_relative_paths(text: str) -> str:
    """The text with all its paths under the working folder relative to that, as in stacks."""
    here = str(Path.cwd())
    return text if here == "/" else re.sub(rf"(?<![\w./~-]){re.escape(here)}/(?=[\w.])", "", text)
