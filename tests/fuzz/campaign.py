"""Fuzzes all targets in turns, and keeps what each turn gave.

    pip install atheris
    python tests/fuzz/campaign.py --minutes 60
    python tests/fuzz/campaign.py --minutes 0 --page reports/fuzzing.md

The target with the least processor time is next. Every turn is a line of turns.jsonl, so turns of many campaigns add up. Inputs
that reach new code are kept in reached/, one archive for each target, and are where the next turn begins.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

if __package__ in (None, ""):  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

from result_lines import commit_of_tests, read_results

from fuzz.targets import TARGETS

HERE = Path(__file__).parent
TURNS = HERE / "turns.jsonl"
REACHED = HERE / "reached"
AIM = 3600.0
"""Seconds of processor time for each target."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of files in archives, so that equal inputs make equal archives."""
PAGE = """\
# Fuzzing

Coverage-guided fuzzing of each reader of outside data: messages between processes, files, and options
([targets.py](../tests/fuzz/targets.py)). A reader must read an input or refuse it as declared, in 20 s and 2 GiB.

    pip install atheris
    python tests/fuzz/campaign.py --minutes 60
    python tests/fuzz/campaign.py --minutes 0 --page reports/fuzzing.md

{runs:,} inputs in {hours:.2f} hours of processor time; commits {commits}.
The aim is an hour for each target: {reached} of {targets} have reached it. **Inputs that broke a reader: {broken}.**

| target | processor minutes | inputs | kept, as they reach new code | most memory, MB | broke it |
| --- | ---: | ---: | ---: | ---: | ---: |
{rows}

Kept inputs are in tests/fuzz/reached/; `tests/test_fuzz.py` reads them again.

Three inputs broke a reader: an archive of the gate with an unfinished array header, on which NumPy raises a TokenError; a
checkpoint whose plan has windows of 0 micro-batches, which ended in the error of the plan; and an IDX file without elements,
whose other sizes are too large for NumPy. All are refused now, in a sentence with the file's name, and are in tests/fuzz/corpus/.

Before turns were kept, seven targets ran for 240 s each on an older tree, without a crash: control_frames 844,509 inputs,
control_values 3,867,369, knock 200,704, message 30,301, datagram 21,505, rendezvous 5,969, failure 2,420.
"""


def turn(name: str, seconds: int, commit: str) -> dict[str, Any]:
    """Fuzz one target, from the inputs that earlier turns have kept."""
    with tempfile.TemporaryDirectory(prefix="ddpcheck-fuzz-") as folder:
        archive, inputs = REACHED / f"{name}.zip", Path(folder, name)
        inputs.mkdir()
        if archive.exists():
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(inputs)
        command = [sys.executable, str(HERE / "run.py"), name, "--seconds", str(seconds), "--corpus", folder]
        with Path(folder, "said").open("w+", errors="replace") as said:
            running = subprocess.Popen(command, stdout=said, stderr=said)
            _, status, used = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read()
        _pack(inputs, archive)
    statistics = {key: int(value) for key, value in re.findall(r"stat::(\w+): *(\d+)", text)}
    return {
        "target": name,
        "commit": commit,
        "processor": round(used.ru_utime + used.ru_stime, 1),
        "runs": statistics.get("number_of_executed_units", 0),
        "memory": statistics.get("peak_rss_mb", 0),
        "broken": "" if running.returncode == 0 else text[-2000:],
    }


def _pack(inputs: Path, archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(inputs.iterdir()):
            if not path.name.startswith("seed-"):
                packed.writestr(zipfile.ZipInfo(path.name, LONG_AGO), path.read_bytes(), zipfile.ZIP_DEFLATED)


def page(turns: Sequence[dict[str, Any]]) -> str:
    """The page of all turns."""
    rows, reached = [], 0
    for name in TARGETS:
        of_it = [each for each in turns if each["target"] == name]
        used = sum(each["processor"] for each in of_it)
        reached += used >= AIM
        kept = 0
        if (archive := REACHED / f"{name}.zip").exists():
            with zipfile.ZipFile(archive) as packed:
                kept = len(packed.namelist())
        runs, broken = sum(each["runs"] for each in of_it), sum(bool(each["broken"]) for each in of_it)
        memory = max((each["memory"] for each in of_it), default=0)
        rows.append(f"| {name} | {used / 60:.1f} | {runs:,} | {kept} | {memory} | {broken} |")
    return PAGE.format(
        runs=sum(each["runs"] for each in turns),
        hours=sum(each["processor"] for each in turns) / 3600,
        commits=", ".join(sorted({each["commit"] for each in turns})),
        reached=reached,
        targets=len(TARGETS),
        broken=sum(bool(each["broken"]) for each in turns),
        rows="\n".join(rows),
    )


@click.command()
@click.option("--minutes", type=float, default=60.0, show_default=True)
@click.option("--seconds", type=int, default=120, show_default=True, help="Of one turn.")
@click.option("--page", "target", type=click.Path(path_type=Path), help="Write the page of all turns to this file.")
def command(minutes: float, seconds: int, target: Path | None) -> None:
    """Fuzz the targets in turns."""
    commit = commit_of_tests()
    until = time.monotonic() + 60 * minutes
    while time.monotonic() + seconds < until:
        used = dict.fromkeys(TARGETS, 0.0)
        for each in read_results(TURNS):
            used[each["target"]] += each["processor"]
        done = turn(min(used, key=lambda name: used[name]), seconds, commit)
        with TURNS.open("a", encoding="utf-8") as turns:
            turns.write(json.dumps(done) + "\n")
        click.echo(
            f"{done['target']}: {done['runs']:,} inputs in {done['processor']} s{' BROKEN' * bool(done['broken'])}"
        )
    if target is not None:
        target.write_text(page(read_results(TURNS)), encoding="utf-8")


if __name__ == "__main__":
    command()
