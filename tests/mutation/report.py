"""reports/mutation.md: the score of every package, the checks that killed mutants, and each survivor with its reason.

Reasons are in survivors.toml, by file and by the mutant's line: "equivalent" says why no law can tell it from the
original, "open" why it was left. A survivor without reason is open. Its `law` entries are mutants that survived until a
law was written; a check kills them now.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Reasons = Mapping[tuple[str, str], tuple[str, str]]
"""(kind, reason) by file and line."""
SURVIVORS = Path(__file__).with_name("survivors.toml")
HEAD = """\
# Mutation of the references

A mutant is a small change of the references' sources. The conformance suite alone judges each mutant, without unit tests: the
default profile at two and three ranks, then at one and four, until the first check fails. Only families that use the changed
file run; others could only kill more. The mutants are seeded samples of all mutants by cosmic-ray's operators and by the
removal of single statements. Changes of annotations and of promises, which only remove checks, are left out. Mutants run in
random order, so an interrupted run is a smaller sample of each package.

An equivalent mutant breaks no law: it changes a text, a speed, behaviour without a promise, or nothing. All survivors
are listed below. A mutant is judged once, with the laws of that day. Laws were written for some of these mutants. The share
that was killed before is the measure for unknown mutants; another --seed is another measure.

    pip install cosmic-ray
    python tests/mutation/run.py tests/mutation/mutants.jsonl --size {size} --seed {seed}
    python tests/mutation/run.py tests/mutation/mutants.jsonl --size {size} --markdown reports/mutation.md

Judged so far: {judged}, of samples by --seed 0 and --seed 11.
"""


def is_open(one: dict[str, Any]) -> bool:
    """Whether this line of run.py's file is a survivor that is not marked equivalent."""
    return not one["killed_by"] and _kind(one, _reasons(_entries())) == "open"


def markdown(judged: Sequence[dict[str, Any]], packages: Sequence[str], size: int, seed: int) -> str:
    """judged: lines of run.py's file. ValueError if survivors.toml has a reason for a killed mutant."""
    entries = _entries()
    reasons = _reasons(entries)
    laws = {(entry["file"], entry["becomes"]): entry["law"] for entry in entries["law"]}
    survivors = [one for one in judged if not one["killed_by"]]
    stray = {*reasons} - {_key(one) for one in survivors}
    if stray:
        raise ValueError(f"survivors.toml has reasons for mutants that did not survive: {sorted(stray)}")
    lines = [HEAD.format(judged=len(judged), size=size, seed=seed)]
    lines += [
        "| package | mutants | killed | equivalent | open | killed of those that are not equivalent | before new laws |"
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for package in packages:
        lines.append(_score(package, [one for one in judged if f"/{package}/" in one["file"]], reasons, laws))
    lines.append(_score("all", judged, reasons, laws))
    lines += ["", "## Mutants for which laws were written", ""]
    for one in judged:
        if _key(one) in laws:
            lines += [laws[_key(one)], "", *_shown(one)]
    lines += ["## First failed checks", "", "| first to fail | mutants |", "| --- | --- |"]
    killers = Counter(one["killed_by"].partition(" (")[0] for one in judged if one["killed_by"])
    lines += [f"| {_code(name)} | {count} |" for name, count in killers.most_common()]
    lines += ["", "## Survivors"]
    for kind in ("open", "equivalent"):
        by_reason: dict[str, list[dict[str, Any]]] = {}
        for one in survivors:
            if _kind(one, reasons) == kind:
                by_reason.setdefault(reasons.get(_key(one), ("", "no reason was given"))[1], []).append(one)
        lines += ["", f"### {kind.capitalize()} ({sum(map(len, by_reason.values()))})"]
        for reason, there in sorted(by_reason.items(), key=lambda item: -len(item[1])):
            lines += ["", f"{len(there)} x {reason}:", ""]
            for one in there:
                lines += _shown(one)
            lines.pop()
    return "\n".join(lines).rstrip() + "\n"


def _entries() -> dict[str, Any]:
    return tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))


def _reasons(entries: Mapping[str, Any]) -> Reasons:
    return {(entry["file"], entry["becomes"]): (entry["kind"], entry["reason"]) for entry in entries["survivor"]}


def _key(one: dict[str, Any]) -> tuple[str, str]:
    becomes = [line[2:] for line in one["diff"].splitlines() if line.startswith("+")]
    package, name = Path(one["file"]).parts[-2:]
    # a removed statement is named by its text
    return f"{package}/{name}", becomes[0] if becomes[0] != "pass" else one["diff"].splitlines()[0]


def _kind(one: dict[str, Any], reasons: Reasons) -> str:
    return reasons.get(_key(one), ("open", ""))[0]


def _score(name: str, judged: Sequence[dict[str, Any]], reasons: Reasons, laws: Mapping[tuple[str, str], str]) -> str:
    killed = sum(bool(one["killed_by"]) for one in judged)
    before = sum(bool(one["killed_by"]) and _key(one) not in laws for one in judged)
    kinds = Counter(_kind(one, reasons) for one in judged if not one["killed_by"])
    matter = killed + kinds["open"]
    shares = " | ".join(f"{100 * part / matter:.1f} %" if matter else "" for part in (killed, before))
    return f"| {name} | {len(judged)} | {killed} | {kinds['equivalent']} | {kinds['open']} | {shares} |"


def _code(name: str) -> str:
    return f"`{name}`" if name.startswith("check_") else name


def _shown(one: dict[str, Any]) -> Iterator[str]:
    yield f"    {_key(one)[0]}:{one['place'][0]}"
    yield from (f"    {line}" for line in one["diff"].splitlines())
    yield ""
