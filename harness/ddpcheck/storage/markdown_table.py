"""Tables in markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def markdown_table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table; a line break in a cell becomes a space. right: the places of columns that are aligned to the right."""
    rule = ["---:" if place in right else "---" for place in range(len(names))]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in (names, rule, *rows)
    )
