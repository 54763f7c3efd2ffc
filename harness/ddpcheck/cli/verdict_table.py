"""The table of a run: checks by family as rows, adapters as columns, one symbol for each world size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from ..counted_nouns import counted
from ..verdict import SYMBOLS, Verdict

WORDS: dict[str, str] = {
    "passed": "passed",
    "failed": "failed",
    "hung": "hung",
    "unknown": "unknown",
    "expected_failure": "failed as expected",
    "skipped": "skipped",
}
_REMARKS = {"unknown": " (the check could not judge)"}
"""Added to the words in the legend."""
STYLES: dict[str, str] = {
    "passed": "green",
    "failed": "bold red",
    "hung": "bold red",
    "unknown": "bold magenta",
    "expected_failure": "yellow",
    "skipped": "dim",
}
_FEWEST = 3
"""The number of checks from which a family can have one row for all of them."""
_NAME = 20
"""Characters of an adapter's name that a narrow terminal shows at least."""


def symbol(status: str) -> str:
    return f"[{STYLES[status]}]{SYMBOLS[status]}[/]"


def show_table(console: Console, verdicts: Sequence[Verdict], *, every: bool = False) -> None:
    """Without `every`, checks that were skipped in all columns have no row, and a family of several checks that passed
    where they ran has one row.
    """
    ran = {verdict.check for verdict in verdicts if every or verdict.status != "skipped"}
    families: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.check in ran:
            families.setdefault(verdict.family, []).append(verdict)
    sizes: dict[str, set[int]] = {}
    for verdict in verdicts:
        sizes.setdefault(verdict.adapter, set()).add(verdict.world_size)
    columns = {name: sorted(found) for name, found in sizes.items()}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("check \\ ranks", overflow="fold")
    for name, found in columns.items():
        table.add_column(f"{escape(name)}\n{' '.join(map(str, found))}", no_wrap=True, min_width=min(len(name), _NAME))
    folded = 0
    for family, judged in families.items():
        checks = dict.fromkeys(verdict.check for verdict in judged)
        if not every and len(checks) >= _FEWEST and {verdict.status for verdict in judged} <= {"passed", "skipped"}:
            folded += 1
            table.add_row(f"[bold]{escape(family)}[/], {counted(len(checks), 'check')}", *_cells(judged, columns))
            continue
        table.add_row(f"[bold]{escape(family)}[/]")
        for check in checks:
            indented = Padding(escape(check), (0, 0, 0, 2))
            table.add_row(indented, *_cells([v for v in judged if v.check == check], columns))
    if ran:
        console.print(table)
        used = [status for status in WORDS if any(v.status == status and v.check in ran for v in verdicts)]
        legend = (f"{symbol(status)} {WORDS[status]}{_REMARKS.get(status, '')}" for status in used)
        console.print("   ".join(legend), soft_wrap=True)
    if text := _left_out(folded, len({verdict.check for verdict in verdicts} - ran)):
        console.print(text, style="dim", soft_wrap=True)


def _cells(verdicts: Iterable[Verdict], columns: dict[str, list[int]]) -> list[str]:
    """A cell for each adapter, with a symbol for each world size: of a check, or of a family in which none failed."""
    found: dict[tuple[str, int], str] = {}
    for verdict in verdicts:
        place = verdict.adapter, verdict.world_size
        if found.get(place, "skipped") == "skipped":
            found[place] = verdict.status
    return [
        " ".join(_symbol_of_size(found.get((name, size)), size) for size in sizes) for name, sizes in columns.items()
    ]


def _symbol_of_size(status: str | None, world_size: int) -> str:
    """As wide as the world size above it."""
    return f"{symbol(status)}{' ' * (len(str(world_size)) - 1)}" if status else " "


def _left_out(folded: int, hidden: int) -> str:
    """A sentence on rows that the table does not have."""
    parts = []
    if folded:
        parts.append("A family has one row if none of its checks failed.")
    if hidden:
        were, have = ("was", "has") if hidden == 1 else ("were", "have")
        parts.append(f"{counted(hidden, 'check')} {were} skipped at every world size, and {have} no row.")
    return f"{' '.join(parts)} --verbose shows all rows." if parts else ""
