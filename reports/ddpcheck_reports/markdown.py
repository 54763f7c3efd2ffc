"""Markdown that all reports are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may hold anything but a line's end, which becomes a space."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
