"""Measures whether the first headlines of a run are the planted faults.

    python tests/planted/run.py planted.jsonl --seed 1 --singles 25 --pairs 25 --triples 15
    python tests/planted/run.py planted.jsonl --seed 1 --seed 2 --page reports/planted-faults.md
    python tests/planted/run.py planted.jsonl --seed 3 --singles 0 --pairs 20 --triples 10 --keep

Singles are drawn from all registered faults with a cause. Pairs and triples are replicas with several faults of
different modules at once. The quick profile judges each combination at the smallest world size at which its faults
show. Its failures are a line of the results: existing lines are not run again, and the score uses the present ranking
of causes.

A draw depends on the registered faults. `--keep` writes the draw of a seed to tests/planted/draws/, and later runs with
that seed use it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from planted.faults_together import alone, fit_together, reference
from planted.score import Combination, page

from ddpcheck.running.adapter_lookup import reference_of
from ddpcheck.running.check_runner import Settings, run_checks
from ddpcheck.running.profiles import Profile, profile_named
from ddpcheck.verdict import Verdict
from ddpcheck_implementations.faulty import Registered, faults

DRAWS = Path(__file__).with_name("draws")
DEADLINE = 20.0
"""Seconds for one Job, on a busy machine."""


def chosen_together(number: int, together: int, seed: int) -> Iterator[list[Registered]]:
    """`number` combinations of `together` faults each: from a kept draw, or drawn now."""
    kept = DRAWS / f"{seed}.json"
    if not kept.exists():
        yield from drawn(number, together, seed)
        return
    by_name = {fault.name: fault for fault in faults()}
    for names in json.loads(kept.read_text(encoding="utf-8")):
        if len(names) == together:
            yield [by_name[name] for name in names]


def keep(numbers: dict[int, int], seed: int) -> Path:
    """Write the names of the faults of a draw."""
    names = [[fault.name for fault in chosen] for count, n in numbers.items() for chosen in drawn(n, count, seed)]
    place = DRAWS / f"{seed}.json"
    place.write_text("[\n" + ",\n".join(f"  {json.dumps(each)}" for each in names) + "\n]\n", encoding="utf-8")
    return place


def drawn(number: int, together: int, seed: int) -> Iterator[list[Registered]]:
    """`number` random combinations of `together` faults that fit together."""
    source = random.Random(f"{seed} {together}")
    pool = [fault for fault in faults() if fault.cause] if together == 1 else [*alone().values()]
    pool = [fault for fault in pool if not fault.deep]  # the quick profile does not reach them
    pool.sort(key=lambda fault: fault.name)
    for _ in range(number):
        chosen = source.sample(pool, together)
        while together > 1 and not fit_together(chosen):
            chosen = source.sample(pool, together)
        yield chosen


def judged(chosen: list[Registered], seed: int) -> Combination:
    """The failures of a run with these faults."""
    began = time.monotonic()
    place = reference_of(chosen[0].adapter) if len(chosen) == 1 else reference(chosen)
    quick = profile_named("quick")
    settings = Settings(Profile("planted", quick.effort, (chosen[0].world_size,), "Planted faults."), DEADLINE)
    failed = tuple(_told(verdict) for verdict in run_checks(place, settings=settings) if not verdict.ok)
    seconds = round(time.monotonic() - began, 1)
    return Combination.new(seed, chosen, failed, seconds)


def _told(verdict: Verdict) -> Verdict:
    """A verdict without its details, which no ranking reads."""
    told = verdict.diagnosis
    return verdict if told is None else replace(verdict, diagnosis=replace(told, details=()))


@click.command(help=__doc__)
@click.argument("results", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--singles", default=25)
@click.option("--pairs", default=25)
@click.option("--triples", default=15)
@click.option("--seed", "seeds", multiple=True, type=int, default=(1,), help="May be repeated.")
@click.option(
    "--page", "place", type=click.Path(path_type=Path), help="Write the page of the results so far, and run nothing."
)
@click.option("--keep", "keeps", is_flag=True, help="Write the draw of the seed to a file, and run nothing.")
def main(
    results: Path, singles: int, pairs: int, triples: int, seeds: tuple[int, ...], place: Path | None, keeps: bool
) -> None:
    """Judge combinations that are not in the results yet, and print a line for each."""
    numbers = {1: singles, 2: pairs, 3: triples}
    lines = results.read_text().splitlines() if results.exists() else []
    known = [each for each in map(Combination.from_plain, map(json.loads, lines)) if each.seed in seeds]
    if place is not None:
        place.write_text(page(known, seeds), encoding="utf-8")
        return
    for seed in seeds:
        if keeps:
            print(keep(numbers, seed))
            continue
        for together, number in numbers.items():
            for chosen in chosen_together(number, together, seed):
                names = tuple(each.name for each in chosen)
                one = next((each for each in known if (each.seed, each.names) == (seed, names)), None)
                if one is None:
                    one = judged(chosen, seed)
                    with results.open("a") as file:
                        file.write(json.dumps(one.to_plain()) + "\n")
                print(one.line(), flush=True)


if __name__ == "__main__":
    main()
