"""Searches for false alarms on a starved machine: `ddpcheck check` of what is known to be right, beside busy loops.

    python tests/false_alarms/under_load.py tests/false_alarms/under-load.jsonl
    python tests/false_alarms/under_load.py tests/false_alarms/under-load.jsonl --markdown reports/false-alarms-under-load.md

Every adapter that comes with ddpcheck, and every correct but unusual one, is checked once, in profile quick with its usual
deadline. Each is a line of the results, so an interrupted campaign continues.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from result_lines import commit_of_tests, read_results
from run import Subject, subjects

PROFILE = "quick"
LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""A process that never waits, and ends with this one."""
TEMPLATE = """\
# False alarms under load

`ddpcheck check ADAPTER -w RANKS --profile {profile}` of correct implementations, beside {loops} processes that never wait, on
{cores} cores; {at_once} adapters at a time. A check that fails or hangs would be a false alarm.

    python tests/false_alarms/under_load.py tests/false_alarms/under-load.jsonl
    python tests/false_alarms/under_load.py tests/false_alarms/under-load.jsonl --markdown PAGE

{adapters} of {all} adapters so far: {passed:,} checks passed, {jobs:,} Jobs.
Load average at the end of each: {least:.0f} to {most:.0f}. Commits: {commits}. **Alarms: {alarms}.**

| adapter | ranks | passed | skipped | unknown | alarms | Jobs | seconds | load |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
{rows}
"""


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run processes that never wait."""
    with ExitStack() as running:
        for _ in range(loops):
            loop = running.enter_context(subprocess.Popen([sys.executable, "-c", LOOP]))
            running.callback(loop.kill)
        yield


def checked(subject: Subject, commit: str, loops: int, at_once: int) -> dict[str, Any]:
    """The verdicts of one adapter, by the command that users run."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="under-load-") as folder:
        results = Path(folder, "results.json")
        words = ("check", subject.reference, "-w", str(subject.first), "--profile", PROFILE, "--json", str(results))
        ended = subprocess.run(
            [sys.executable, "-m", "ddpcheck", *words, "--failures", folder, "-q"],
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(results.read_text(encoding="utf-8"))
    verdicts = found["verdicts"]
    return {
        "adapter": subject.name,
        "world_size": subject.first,
        "status": ended.returncode,
        "counts": Counter(verdict["status"] for verdict in verdicts),
        "jobs": sum(verdict["jobs"] for verdict in verdicts),
        "seconds": round(time.monotonic() - began, 1),
        "load": os.getloadavg()[0],
        "alarms": [verdict for verdict in verdicts if verdict["status"] in ("failed", "hung", "unknown")],
        "commit": commit,
        "loops": loops,
        "at_once": at_once,
    }


def markdown(lines: Sequence[dict[str, Any]], count: int) -> str:
    """The page of the results so far. count: the number of all adapters."""
    rows = []
    for line in lines:
        counts = Counter(line["counts"])
        failed = counts["failed"] + counts["hung"]
        cells = (counts["passed"], counts["skipped"], counts["unknown"], failed, line["jobs"], line["seconds"])
        rows.append(
            f"| {line['adapter']} | {line['world_size']} | {' | '.join(map(str, cells))} | {line['load']:.0f} |"
        )
    return TEMPLATE.format(
        profile=PROFILE,
        loops=lines[0]["loops"],
        at_once=lines[0]["at_once"],
        cores=len(os.sched_getaffinity(0)),
        adapters=len(lines),
        all=count,
        passed=sum(line["counts"].get("passed", 0) for line in lines),
        jobs=sum(line["jobs"] for line in lines),
        least=min(line["load"] for line in lines),
        most=max(line["load"] for line in lines),
        commits=", ".join(sorted({line["commit"] for line in lines})),
        alarms=sum(line["counts"].get(status, 0) for line in lines for status in ("failed", "hung")),
        rows="\n".join(rows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--loops", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--only", default="", help="only adapters whose name matches this regular expression")
    parser.add_argument("--markdown", type=Path, help="write the page of the results so far, and run nothing")
    options = parser.parse_args()
    done = read_results(options.results)
    if options.markdown:
        options.markdown.write_text(markdown(done, len(list(subjects("")))), encoding="utf-8")
        return
    commit = commit_of_tests()
    before = {line["adapter"] for line in done}
    chosen = [one for one in subjects(options.only) if one.name not in before]
    with busy(options.loops), ThreadPoolExecutor(options.at_once) as pool:
        for ended in as_completed(pool.submit(checked, one, commit, options.loops, options.at_once) for one in chosen):
            line = ended.result()
            with options.results.open("a") as results:
                results.write(json.dumps(line) + "\n")
            print(f"{line['seconds']:6.1f} s {line['adapter']}: {dict(line['counts'])}", flush=True)
            for alarm in line["alarms"]:
                print("ALARM", alarm["check"], alarm["status"], alarm.get("reason"), flush=True)


if __name__ == "__main__":
    main()
