"""reports/drawn-faults.md: the number of caught faults by family, and each survivor with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

SURVIVORS = Path(__file__).with_name("survivors.toml")
Key = tuple[str, str, str]
HEAD = """\
# Drawn faults

These faults were not invented one by one. Each is a random pair of a circumstance and an effect on a correct implementation. The
default profile judges each fault at 3 ranks, then at 2 and at 4, until a check fails. Faults without an effect on any rank are
left out.

Laws were extended for some of these faults, and for similar ones. The share that was caught before is the
measure for unknown faults. Seed 2 was judged by the laws that seed 1 had led to. Trainers, scores and streams of
seed 1 were drawn with --each 50. Circumstances that no Job of the default profile reaches have no effect and are left
out, although users may reach them.

    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --seed 1 --each 60
    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --seed 2 --each 30
    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --markdown reports/drawn-faults.md
"""
TABLE = """
## Seed {seed}

| family | with an effect | caught | allowed by the contract | survive | before laws were extended | caught, s (median) |
| --- | --- | --- | --- | --- | --- | --- |"""


def markdown(judged: Sequence[dict[str, Any]]) -> str:
    """judged: lines of run.py's file. ValueError if survivors.toml has a reason for a caught fault."""
    reasons = {
        (one["family"], one["circumstance"], one["effect"]): one
        for one in tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", [])
    }
    effective = [one for one in judged if one["effective"]]
    survivors = [one for one in effective if not one["caught_by"]]
    mended = {key for key, one in reasons.items() if one["kind"] == "law"}
    if stray := {*reasons} - mended - {*map(_key, survivors)}:
        raise ValueError(f"survivors.toml has reasons for faults that did not survive: {sorted(stray)}")
    allowed = {key for key, one in reasons.items() if one["kind"] == "allowed"}
    lines = [HEAD.rstrip()]
    for seed in dict.fromkeys(one["seed"] for one in effective):
        drawn = [one for one in effective if one["seed"] == seed]
        families = [*dict.fromkeys(one["family"] for one in drawn)]
        rows = [_row(family, [one for one in drawn if one["family"] == family], allowed, mended) for family in families]
        lines += [TABLE.format(seed=seed), *rows, _row("all", drawn, allowed, mended)]
    if left := [one for one in survivors if _key(one) not in allowed]:
        lines += ["", "## Survivors", ""]
        lines += [f"- {one['family']}: where {_told(one)}{_why(reasons.get(_key(one)))}" for one in left]
    if let := [one for one in survivors if _key(one) in allowed]:
        lines += ["", "## Allowed by the contract", ""]
        lines += [f"- {one['family']}: where {_told(one)}{_why(reasons[_key(one)])}" for one in let]
    if late := [one for one in effective if _key(one) in mended]:
        lines += ["", "## Faults for which laws were extended", ""]
        lines += [f"- {one['family']}: where {_told(one)}{_why(reasons[_key(one)])}" for one in late]
    lines += ["", "## Caught faults and their messages", "", "| family | where | fault | likely cause |"]
    lines += ["| --- | --- | --- | --- |"]
    lines += [
        f"| {one['family']} | {one['circumstance']} | {one['effect']} | {_cell(one)} |"
        for one in effective
        if one["caught_by"]
    ]
    return "\n".join(lines) + "\n"


def _key(one: dict[str, Any]) -> Key:
    return one["family"], one["circumstance"], one["effect"]


def _row(name: str, ones: Sequence[dict[str, Any]], allowed: set[Key], mended: set[Key]) -> str:
    caught = [one for one in ones if one["caught_by"]]
    let = sum(_key(one) in allowed for one in ones)
    breaches, at_first = len(ones) - let, sum(_key(one) not in mended for one in caught)
    share = f"{at_first} of {breaches} ({100 * at_first / breaches:.1f} %)" if breaches else ""
    seconds = f"{median(one['seconds'] for one in caught):.1f}" if caught else ""
    return f"| {name} | {len(ones)} | {len(caught)} | {let} | {breaches - len(caught)} | {share} | {seconds} |"


def _told(one: dict[str, Any]) -> str:
    return f"{one['circumstance']}, {one['effect']}"


def _why(reason: dict[str, Any] | None) -> str:
    return f" ({reason['reason']})" if reason else ""


def _cell(one: dict[str, Any]) -> str:
    return str(one["cause"] or f"`{one['headline'][:160].strip()}`").replace("|", "\\|").replace("\n", " ")
