"""How many faults that nobody has thought of are caught? Each is drawn: in some circumstance, to some effect.

    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --seed 1 --each 60
    python tests/drawn_faults/run.py tests/drawn_faults/results.jsonl --markdown reports/drawn-faults.md

What faults have in common is written down once, and not with a law in mind: when code goes another way (the length is odd, the
third call, a group of some ranks, ...), and what is wrong there (the last element, a bit, the seed, ...). Of all pairs a seeded
sample is judged, --each of each family: the default profile at 3 ranks, then at 2 and at 4, until a check fails. Every fault is
a line of the results, and is not judged again; drop lines when laws have changed. Of a fault that had no effect on any rank
nothing is told. A survivor may be one that the contract allows: survivors.toml says so, with the reason, or why it was left,
or that a law was extended to it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from adapters import FAMILIES, named
from effect_reports import VARIABLE
from report import markdown
from result_lines import read_results

from ddpcheck.launchers.fork_servers import ForkServers
from ddpcheck.running.check_runner import CheckRunner, Settings
from ddpcheck.running.plan import installed_checks, plan
from ddpcheck.running.profiles import profile_named
from ddpcheck.verdict import Verdict

WORLD_SIZES = (3, 2, 4)
DEADLINE = 20.0
"""Seconds for one operation, on a machine that may have much else to do."""


@dataclass(frozen=True)
class FaultResult:
    """What came of one. effective: whether anything was wrong on any rank. caught_by: the first check that failed, at so many
    ranks, with this headline and cause; empty if none did.
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
    """So many pairs of a circumstance and an effect."""
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
    parser.add_argument("--each", type=int, default=60, help="faults of each family")
    parser.add_argument("--family", action="append", choices=[*FAMILIES], help="only these")
    parser.add_argument("--markdown", type=Path, help="write the report of what has run, and run nothing")
    options = parser.parse_args()
    done = [FaultResult(**line) for line in read_results(options.results)]
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


if __name__ == "__main__":
    main()
