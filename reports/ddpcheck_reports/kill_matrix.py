"""The kill matrix: the outcomes of `ddpcheck faults --json` as a page of markdown.

python -m ddpcheck_reports.kill_matrix kills.json > kill-matrix.md

Several files, which may come from simultaneous runs, make one page.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpcheck.storage.markdown_table import markdown_table

_THREAD = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)")


def markdown(record: Mapping[str, Any]) -> str:
    """The whole page."""
    kills: Sequence[Mapping[str, Any]] = record["kills"]
    parts = ["# Kill matrix", _summary(kills)]
    for family in sorted({kill["family"] for kill in kills}):
        parts += [f"## {family}", _table([kill for kill in kills if kill["family"] == family])]
    parts += ["## Causes that faults show", "For each cause, one fault whose failure names it.", _causes(kills)]
    here, runs = record["environment"], record.get("runs", 1)
    parts += [
        "## How this was run",
        f"`ddpcheck faults --profile {record['profile']} --deadline {record['deadline']:g}`, Python {here['python']}, "
        f"{here['cores']} cores visible. Seconds include the start of the ranks."
        + f" The matrix was run in {runs} parts, some of them at the same time or at earlier revisions."
        * (runs > 1),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(kills: Sequence[Mapping[str, Any]]) -> str:
    seconds = [kill["seconds"] for kill in kills if _caught(kill)]
    slowest = max((kill for kill in kills if _caught(kill)), key=lambda kill: float(kill["seconds"]), default=None)
    text = f"**{len(seconds)} of {len(kills)}** adapters that are wrong on purpose are caught by every check that names them"
    if slowest is not None:
        text += (
            f"; the first failure comes after {statistics.median(seconds):.1f} s in the median, and after "
            f"{slowest['seconds']:.1f} s at the slowest ({slowest['name']})"
        )
    named = sum(bool(kill["first"] and _said(kill["first"])) for kill in kills)
    seen = sum(bool(kill["seen_in"]) for kill in kills)
    origins = f"{seen} of these faults were seen in real code; {len(kills) - seen} were invented."
    return f"{text}. {named} of the first failures name a cause. {origins}"


def _table(kills: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for kill in kills:
        first: Mapping[str, Any] = kill["first"] or {"check": "**survives**"}
        said = _said(first) or _code(str(first.get("diagnosis", {}).get("headline", "")))
        mark = "✓" if _caught(kill) else "✗"
        rows.append(
            [
                f"{mark} {kill['name']}",
                str(kill["world_size"]),
                f"`{first['check']}`",
                f"{kill['seconds']:.1f}",
                said,
                _THREAD.sub(r"[\1#\2](https://github.com/\1/issues/\2)", ", ".join(kill["seen_in"]) or "invented"),
            ]
        )
    return markdown_table(
        ["fault", "ranks", "first caught by", "after s", "likely cause, as a user reads it", "seen in"], rows
    )


def _causes(kills: Sequence[Mapping[str, Any]]) -> str:
    shown: dict[str, str] = {}
    for kill in kills:
        for cause in kill.get("causes", ()):
            shown.setdefault(cause, kill["name"])
    return markdown_table(["cause", "fault"], [[f"`{cause}`", fault] for cause, fault in sorted(shown.items())])


def _code(text: str) -> str:
    """Numbers and brackets as code, which markdown would otherwise interpret."""
    return f"`{text.replace('`', chr(39))}`" if text else ""


def _caught(kill: Mapping[str, Any]) -> bool:
    return bool(kill["first"]) and not kill["missed"]


def _said(verdict: Mapping[str, Any]) -> str:
    causes = (verdict.get("diagnosis") or {}).get("causes", ())
    return f"{causes[0]['headline']} (`{causes[0]['id']}`)" if causes else ""


def merged(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """One record of several runs; the last outcome of a fault counts."""
    kills = {(kill["family"], kill["name"]): kill for record in records for kill in record["kills"]}
    return {**records[-1], "kills": [*kills.values()], "runs": len(records)}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m ddpcheck_reports.kill_matrix KILLS.json...")
    print(markdown(merged([json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]])), end="")
