"""Measures how many random faults are caught. A fault is a random pair of a circumstance and an effect.

    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --seed 1 --each 60
    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --markdown reports/drawn-faults.md

Circumstances (an odd length, the third call, a group of some ranks, ...) and effects (on the last element, a bit, the
seed, ...) are written independently of laws. A seeded sample of all pairs is judged, --each per family: the default
profile at 3 ranks, then at 2 and at 4, until a check fails. Every fault is a line of the results, and is not judged
again; remove lines after laws have changed. Faults without an effect on any rank are left out. For a survivor,
survivors.toml gives the reason: the contract allows it, it was left open, or a law was extended to catch it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from adapters import FAMILIES, named
from effect_reports import VARIABLE
from report import markdown

from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.running.check_runner import CheckRunner, Settings
from ddpcheck.running.plan import installed_checks, plan
from ddpcheck.running.profiles import profile_named
from ddpcheck.verdict import Verdict

WORLD_SIZES = (3, 2, 4)
DEADLINE = 20.0
"""Seconds for one operation, on a busy machine."""


@dataclass(frozen=True)
class FaultResult:
    """The outcome of one fault. effective: whether it had an effect on any rank. caught_by: the first check that
    failed, with its world size, headline and cause; empty if none failed.
    """

    family: str
    circumstance: str
    effect: str
    seed: int
    effective: bool
    caught_by: str
    world_size: int
    headline: str
    cause: str
    seconds: float


def drawn(family: str, seed: int, count: int) -> list[tuple[str, str]]:
    """`count` pairs of a circumstance and an effect."""
    module = FAMILIES[family]
    pairs = list(product(module.CIRCUMSTANCES, module.EFFECTS))
    return random.Random(f"{family} {seed}").sample(pairs, count)


def judged(family: str, circumstance: str, effect: str, seed: int, fork_servers: ForkServers) -> FaultResult:
    reference = f"{Path(__file__).with_name('adapters.py')}:{named(family, circumstance, effect)}"
    began, failed = time.monotonic(), None
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "effect")
        os.environ[VARIABLE] = str(report)
        for world_size in WORLD_SIZES:
            failed = failed or _first_failure(reference, world_size, fork_servers)
        effective = report.exists() or failed is not None
    seconds = round(time.monotonic() - began, 1)
    if failed is None:
        return FaultResult(family, circumstance, effect, seed, effective, "", 0, "", "", seconds)
    found = failed.diagnosis
    words = (found.headline, found.cause) if found else (failed.reason, "")
    return FaultResult(family, circumstance, effect, seed, effective, failed.check, failed.world_size, *words, seconds)


def _first_failure(reference: str, world_size: int, fork_servers: ForkServers) -> Verdict | None:
    items = [item for item in plan(reference, (world_size,), installed_checks()) if not item.skip]
    settings = Settings(profile_named("default"), DEADLINE, None)
    with CheckRunner(items[0].adapter, items[0].reference, world_size, settings, fork_servers=fork_servers) as ranks:
        return next((verdict for verdict in map(ranks.verdict, items) if not verdict.ok), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=60, help="number of faults of each family")
    parser.add_argument("--family", action="append", choices=[*FAMILIES], help="only these")
    parser.add_argument("--markdown", type=Path, help="write the report of the results so far, and run nothing")
    options = parser.parse_args()
    done = _read(options.results)
    if options.markdown:
        options.markdown.write_text(markdown([asdict(one) for one in done]), encoding="utf-8")
        return
    known = {(one.family, one.circumstance, one.effect) for one in done}
    with ForkServers() as fork_servers:
        for family in options.family or FAMILIES:
            for pair in drawn(family, options.seed, options.each):
                if (family, *pair) in known:
                    continue
                one = judged(family, *pair, options.seed, fork_servers)
                with options.results.open("a") as results:
                    results.write(json.dumps(asdict(one)) + "\n")
                print(f"{one.seconds:6.1f} s {family}: {' -> '.join(pair)}: {_outcome(one)}", flush=True)


def _outcome(one: FaultResult) -> str:
    return one.caught_by or ("SURVIVES" if one.effective else "no effect")


def _read(results: Path) -> Sequence[FaultResult]:
    if not results.exists():
        return []
    return [FaultResult(**json.loads(line)) for line in results.read_text().splitlines()]


if __name__ == "__main__":
    main()
