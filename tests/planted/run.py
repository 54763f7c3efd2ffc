"""How often are the first headlines of a run the faults that were planted?

    python tests/planted/run.py --singles 20 --pairs 15 --triples 5

Each combination is an adapter with several registered faults at once. It is right if the first headlines, as many as there are
faults, name the causes that the faults are registered with.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from planted.faults_together import alone, fit_together, reference

from ddpcheck.running.check_runner import Settings, run_checks
from ddpcheck.running.failure_groups import alike, known_by
from ddpcheck.running.profiles import Profile


def drawn(number: int, together: int, seed: int) -> Iterator[list[str]]:
    """So many combinations of faults that fit together."""
    source = random.Random(f"{seed} {together}")
    names = sorted(alone())
    for _ in range(number):
        chosen = source.sample(names, together)
        while not fit_together([alone()[name] for name in chosen]):
            chosen = source.sample(names, together)
        yield chosen


def headlines(names: list[str], effort: int) -> list[str]:
    """The ids of the causes that the run tells, in their order."""
    settings = Settings(Profile("planted", effort, (2,), "Planted faults."))
    return ["".join(known_by(group.first)[:1]) for group in alike(run_checks(reference(names), settings=settings))]


@click.command()
@click.option("--singles", default=0)
@click.option("--pairs", default=15)
@click.option("--triples", default=0)
@click.option("--seed", default=1)
@click.option("--effort", default=8)
def main(singles: int, pairs: int, triples: int, seed: int, effort: int) -> None:
    """Plant faults, and print a line for each combination and the shares."""
    for together, number in ((1, singles), (2, pairs), (3, triples)):
        right = only = 0
        for names in drawn(number, together, seed):
            planted = {alone()[name].cause for name in names}
            told = headlines(names, effort)
            right += set(told[:together]) == planted
            only += len(told) == together and set(told) == planted
            print("+" if set(told[:together]) == planted else "-", names, sorted(planted), told[:6], flush=True)
        if number:
            print(
                f"{together} planted: the first {together} headlines are the true set in {right} of {number}, alone in {only}"
            )


if __name__ == "__main__":
    main()
