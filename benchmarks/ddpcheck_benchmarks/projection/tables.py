"""Tables of numbers for a terminal and for markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table as RichTable


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below a title; the first `words` columns are words, the others numbers. Notes are below the rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 1


def markdown(title: str, tables: Sequence[Table], lists: Sequence[tuple[str, Sequence[str]]]) -> str:
    """A page: each table in a section of its own, then lists below their titles."""
    parts = [f"# {title}"]
    for table in tables:
        parts += [f"## {table.title}", _pipes(table), *(f"{note}" for note in table.notes)]
    for heading, lines in lists:
        parts += [f"## {heading}", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def rich(table: Table) -> RichTable:
    shown = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, name in enumerate(table.header):
        shown.add_column(escape(name), justify="left" if place < table.words else "right", no_wrap=place >= table.words)
    for row in table.rows:
        shown.add_row(*map(escape, row))
    return shown


def _pipes(table: Table) -> str:
    cells = [[_cell(text) for text in row] for row in (table.header, *table.rows)]
    widths = [max(3, *(len(row[place]) for row in cells)) for place in range(len(table.header))]
    rule = ["-" * width if place < table.words else "-" * (width - 1) + ":" for place, width in enumerate(widths)]
    lines = [_padded(cells[0], widths, table.words), rule, *(_padded(row, widths, table.words) for row in cells[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _padded(row: Sequence[str], widths: Sequence[int], words: int) -> list[str]:
    return [
        text.ljust(width) if place < words else text.rjust(width)
        for place, (text, width) in enumerate(zip(row, widths, strict=True))
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
