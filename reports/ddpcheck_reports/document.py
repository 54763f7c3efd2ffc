"""A report as a list of blocks, and its three forms: a page with figures, a summary without, plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SUMMARY_BYTES = 60_000
"""The limit of a comment on a pull request, with a reserve."""
_WIDTH = 110
_CUT = "\n\nThe rest does not fit into a comment; it is in the full report.\n"


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or a list if its lines begin with "- "."""

    text: str


@dataclass(frozen=True, slots=True)
class Alert:
    kind: Literal["NOTE", "WARNING", "CAUTION"]
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Cells that are numbers are aligned right. caption: one line above the table."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """An image beside the page. alt: its content in a sentence; twin: its content as text."""

    file: str
    alt: str
    twin: str


@dataclass(frozen=True, slots=True)
class Code:
    text: str
    language: str = "text"


Block = Heading | Text | Alert | Table | Figure | Code


def page(blocks: Sequence[Block]) -> str:
    """The page as GitHub's markdown, with figures by relative links."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def summary(blocks: Sequence[Block]) -> str:
    """The page without images, with their twins in fences, cut at a block's end if it is too long."""
    text = ""
    for block in blocks:
        more = _markdown(Code(f"{block.alt}\n\n{block.twin}") if isinstance(block, Figure) else block)
        if len((text + more + _CUT).encode()) > SUMMARY_BYTES:
            return text.rstrip() + _CUT
        text += more + "\n\n"
    return text.rstrip() + "\n"


def plain(blocks: Sequence[Block]) -> str:
    """The page as plain text, for a terminal or a mail."""
    return "\n\n".join(_plain(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Alert(kind, text):
            return "\n".join([f"> [!{kind}]", *(f"> {line}".rstrip() for line in text.splitlines())])
        case Table(names, rows, caption):
            return f"{caption}\n\n{_grid(names, rows)}" if caption else _grid(names, rows)
        case Figure(file, alt, _):
            return f"![{alt}]({file})"
        case Code(text, language):
            return f"```{language}\n{text}\n```"


def _plain(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{text}\n{('=' if level == 1 else '-') * len(text)}"
        case Text(text):
            lines = [
                textwrap.fill(line, _WIDTH, subsequent_indent="  " * line.startswith("- "))
                for line in text.splitlines()
            ]
            return "\n".join(lines).replace("`", "")
        case Alert(kind, text):
            return f"{kind}: {text}"
        case Table(names, rows, caption):
            cells = _widened([list(names), *(list(row) for row in rows)])
            return "\n".join(([f"{caption}"] if caption else []) + ["  ".join(line).rstrip() for line in cells])
        case Figure(_, alt, twin):
            return f"{alt}\n\n{twin}"
        case Code(text, _):
            return textwrap.indent(text, "    ")


def _grid(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    safe = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in (names, *rows)]
    cells = _widened(safe)
    rule = [
        "-" * (len(cell) - 1) + ":" if right else "-" * len(cell)
        for cell, right in zip(cells[0], _on_the_right(safe), strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (cells[0], rule, *cells[1:]))


def _widened(lines: list[list[str]]) -> list[list[str]]:
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(*lines, strict=True)]
    right = _on_the_right(lines)
    return [
        [cell.rjust(w) if to_right else cell.ljust(w) for cell, w, to_right in zip(line, widths, right, strict=True)]
        for line in lines
    ]


def _on_the_right(lines: Sequence[Sequence[str]]) -> list[bool]:
    return [all(cell[:1] in "-+0123456789[" for cell in column[1:]) for column in zip(*lines, strict=True)]
