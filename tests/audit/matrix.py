"""Audits the scripts of manifest.toml and writes the outcomes: the first cause of broken scripts, and findings in right
ones.

    python tests/audit/matrix.py                                    # every script; one line each in results.jsonl
    python tests/audit/matrix.py no_sampler right/                  # scripts whose name contains one of these words
    python tests/audit/matrix.py --markdown reports/audit-matrix.md # the page of results.jsonl; runs nothing

A broken script runs unchanged, and again with its repair, which must have no finding. The last line of a script counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpcheck.audit.audit_in_tests import Audited
from ddpcheck.audit.evidence_collection import conduct
from ddpcheck.audit.request import Request
from ddpcheck.audit.verdicts import verdicts_of
from ddpcheck.launchers.fork_servers import ForkServers

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
MANIFEST = SCRIPTS / "manifest.toml"
RESULTS = HERE / "results.jsonl"
OPTIONS = ("--no-gpu", "--resume-check")
HEAD = """\
# Audit matrix

The audit runs on unmodified scripts, some broken on purpose and some right. A broken script is
caught if the first cause is one that the manifest names or accepts (tests/audit/scripts/manifest.toml). A
right script, and the repair of a broken one, must have no finding. Scripts run one after the other, each on 2 ranks.

    python tests/audit/matrix.py
    python tests/audit/matrix.py --markdown reports/audit-matrix.md

"""


@dataclass(frozen=True)
class Entry:
    """One script of the manifest. repaired: with its repair, or right without one, so that no finding is allowed."""

    data: Mapping[str, Any]
    repaired: bool = False

    @property
    def file(self) -> str:
        return str(self.data["file"])

    @property
    def name(self) -> str:
        return f"{self.file} repaired" if self.repaired else self.file

    @property
    def causes(self) -> tuple[str, ...]:
        """Ids that are accepted as the first cause; none for a right script."""
        if self.repaired or "cause" not in self.data:
            return ()
        return (self.data["cause"], *self.data.get("also", ()))

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(need for need in self.data.get("needs", ()) if need not in OPTIONS)

    def text(self) -> str:
        """The script's text. ValueError if a replacement of its repair does not match exactly once."""
        text = (SCRIPTS / self.file).read_text(encoding="utf-8")
        for repair in self.data.get("repair", ()) if self.repaired else ():
            old, new = (
                repair[side].removeprefix("\n") if "\n" in repair[side] else repair[side] for side in ("old", "new")
            )
            if text.count(old) != 1:
                raise ValueError(f"{self.file}: the repair {old!r} is there {text.count(old)} times")
            text = text.replace(old, new)
        return text


def entries() -> list[Entry]:
    """Broken scripts, their repairs, right scripts."""
    every = [Entry(data) for data in tomllib.loads(MANIFEST.read_text(encoding="utf-8"))["script"]]
    broken = [entry for entry in every if entry.causes]
    right = [entry for entry in every if not entry.causes]
    return [*broken, *(Entry(entry.data, True) for entry in broken if "repair" in entry.data), *right]


def audited(entry: Entry, folder: Path, fork_servers: ForkServers | None = None) -> Audited:
    """The audit of one script, run in a folder for its files."""
    script = folder / Path(entry.file).name
    script.write_text(entry.text(), encoding="utf-8")
    data, needs = entry.data, entry.data.get("needs", ())
    request = Request(
        (str(script), *data.get("arguments", ())),
        data.get("ranks", 2),
        no_gpu="--no-gpu" in needs,
        interrupted=tuple(data.get("interrupted", ())),
        resumed=tuple(data["resumed"]) if "resumed" in data else None,
        random_streams=data.get("random_streams", "different"),
        fork_servers=fork_servers,
    )
    with contextlib.chdir(folder):
        evidence = conduct(request)
    return Audited(evidence, tuple(verdicts_of(evidence)))


def outcome(entry: Entry) -> dict[str, Any]:
    """A line of results.jsonl: verdict, causes, gradients against one process, seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = audited(entry, Path(folder))
    broken = [verdict for verdict in result.verdicts if not verdict.ok]
    against = result.status("gradients_equal_those_of_one_process")
    return {
        "script": entry.name,
        "wanted": list(entry.causes),
        "causes": list(result.causes),
        "laws": [verdict.check for verdict in broken],
        "against_one_process": against,
        "why": next(v.reason for v in result.verdicts if v.check == "gradients_equal_those_of_one_process"),
        "steps": result.evidence.steps_seen,
        "seconds": round(time.monotonic() - began, 1),
    }


def verdict(row: Mapping[str, Any]) -> str:
    """right, caught, missed, false alarm, wrong cause or no steps."""
    wanted, causes, laws = row["wanted"], row["causes"], row["laws"]
    if not wanted:
        return "false alarm" if laws else "right" if row["steps"] else "no steps"
    return "missed" if not laws else "caught" if causes and causes[0] in wanted else "wrong cause"


def markdown(rows: Sequence[Mapping[str, Any]], seen_in: Mapping[str, str]) -> str:
    """The page: the last row of each script, in the manifest's order."""
    last = {row["script"]: row for row in rows}
    order = {name: place for place, name in enumerate(seen_in)}
    every = sorted((row for name, row in last.items() if name in order), key=lambda row: order[row["script"]])
    return HEAD + "\n".join(_lines(every, seen_in)) + "\n"


def _lines(rows: Sequence[Mapping[str, Any]], seen_in: Mapping[str, str]) -> Iterator[str]:
    broken = [row for row in rows if row["wanted"]]
    silent = [row for row in rows if not row["wanted"]]
    counts = {kind: sum(verdict(row) == kind for row in broken) for kind in ("caught", "wrong cause", "missed")}
    alarms = sum(verdict(row) != "right" for row in silent)
    yield f"Broken: {len(broken)}. Caught: {counts['caught']}. Wrong cause: {counts['wrong cause']}. Missed: {counts['missed']}."
    yield f"Right or repaired: {len(silent)}. With a finding, or without a step: {alarms}."
    yield f"Seconds of one audit: {_spread([row['seconds'] for row in rows])}."
    yield "\n## Broken scripts\n"
    yield "| script | verdict | first cause | other causes | seconds | seen in |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in broken:
        first, *others = row["causes"] or [f"none; wanted {row['wanted'][0]}"]
        cells = (row["script"], verdict(row), first, ", ".join(others), row["seconds"], seen_in[row["script"]])
        yield "| " + " | ".join(map(str, cells)) + " |"
    yield "\n## Right and repaired scripts\n"
    yield "| script | verdict | findings | gradients against one process | seconds |"
    yield "| --- | --- | --- | --- | --- |"
    for row in silent:
        against = "held" if row["against_one_process"] == "passed" else f"not judged: {row['why']}"
        cells = (row["script"], verdict(row), ", ".join(row["causes"] or row["laws"]), against, row["seconds"])
        yield "| " + " | ".join(map(str, cells)) + " |"


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2]} in the median, {ordered[-1]} at most" if ordered else "none ran"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="audit scripts whose name contains one of these")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--markdown", type=Path, help="write the page of the results, and run nothing")
    args = parser.parse_args()
    every = entries()
    if args.markdown:
        rows = [json.loads(line) for line in args.results.read_text(encoding="utf-8").splitlines()]
        args.markdown.write_text(
            markdown(rows, {entry.name: entry.data.get("seen_in", "") for entry in every}), "utf-8"
        )
        return
    for entry in every:
        if args.words and not any(word in entry.name for word in args.words):
            continue
        row = outcome(entry)
        with args.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{verdict(row):<12} {row['seconds']:5.1f} s  {entry.name}: {', '.join(row['causes'] or row['laws'])}",
            flush=True,
        )


if __name__ == "__main__":
    main()
