"""How often the gate cries wolf, and what it finds.

    python -m ddpcheck_benchmarks.gate.study record --launches 300 aa.npz    real launches of equal code
    python -m ddpcheck_benchmarks.gate.study replay aa.npz                    gates drawn from them, with planted slow-downs
    python -m ddpcheck_benchmarks.gate.study live --runs 20                   real gates: equal code, 10 and 25 % more work
    python -m ddpcheck_benchmarks.gate.study traffic --runs 20                real gates: more messages, more bytes

A replay multiplies head's times, which is cheap and many; `live` runs code that does more (implementations/planted.py), which
is real and few.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from ddpcheck.adapter import Adapter
from ddpcheck.home import Home
from ddpcheck.references import resolve
from ddpcheck.values import Array

from .course import measure
from .decision import Design, confirm, log_ratios, looks
from .launches import Pairing, Toss
from .record import Place, Record
from .result import REGRESSION, result_of
from .side import Side, path_for
from .workload import benchmark_named

PLANTED = "ddpcheck_implementations.planted"
SLOW_DOWNS = (0.0, 0.03, 0.05, 0.10, 0.25)
_EXTRA = {"extra_all_reduce": "step", "unbucketed": "step", "doubled": "step,all_reduce:1MiB"}


@click.group()
def main() -> None:
    """How often the gate cries wolf, and what it finds."""


# ---------------------------------------------------------------------------------------------------------------- replay


@dataclass
class Tried:
    """What came of many gates. seconds: of each, where they were real."""

    verdicts: Counter[str]
    launches: list[int]
    estimates: list[float]
    seconds: list[float]

    @staticmethod
    def none() -> Tried:
        return Tried(Counter(), [], [], [])

    def share(self, *verdicts: str) -> float:
        return sum(self.verdicts[verdict] for verdict in verdicts) / max(1, self.verdicts.total())


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--draws", default=2000, show_default=True, help="Gates for each slow-down.")
@click.option("--seed", default=1, show_default=True)
def replay(file: Path, draws: int, seed: int) -> None:
    """Gates over recorded launches of equal code, head's times multiplied."""
    record = Record.load_from(file)
    rows = []
    for benchmark in record.benchmarks:
        raw = record.launches("measurement", benchmark.name)
        if raw is None:
            continue
        values = log_ratios(raw)
        for slower in SLOW_DOWNS:
            tried = replayed(values, slower, draws, record.design, seed)
            rows.append((benchmark.name, f"+{slower:.0%}", tried))
    click.echo(f"{file}: launches of equal code on {record.environment.cores} cores, load {record.load}\n")
    click.echo(_table(rows))


def replayed(values: Array, slower: float, draws: int, design: Design, seed: int) -> Tried:
    """Gates on recorded ln(head / base) of equal code. Each begins at a random launch and goes on with those that followed, as
    noise lasts; which side is called head is tossed for each launch anew, as it is in a real gate.
    """
    rng = np.random.default_rng(seed)
    tried = Tried.none()
    needed = design.looks[-1] + design.confirmations
    for _ in range(draws):
        order = (rng.integers(len(values)) + np.arange(needed)) % len(values)
        drawn = values[order] * rng.choice([-1.0, 1.0], needed) + np.log1p(slower)
        seen = looks(drawn, design)[-1]
        verdict = {"fail": "unconfirmed", "pass": "pass", "next": "inconclusive"}[seen.outcome]
        launches = seen.launches
        if seen.outcome == "fail":
            launches += design.confirmations
            # those that come next, as they would
            fresh = drawn[seen.launches : seen.launches + design.confirmations]
            verdict = "fail" if confirm(fresh, design).outcome == "fail" else verdict
        tried.verdicts[verdict] += 1
        tried.launches.append(launches)
        tried.estimates.append(seen.estimate)
    return tried


# ------------------------------------------------------------------------------------------------------------ real gates


@main.command("record")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--launches", default=300, show_default=True)
@click.option("--benchmarks", default="step,all_reduce:1MiB", show_default=True)
@click.option("-w", "--world-size", default=2, show_default=True)
@click.option("--adapter", "name", default=f"{PLANTED}:plain", show_default=True)
@click.option("--seed", default=1, show_default=True)
def record_launches(file: Path, launches: int, benchmarks: str, world_size: int, name: str, seed: int) -> None:
    """Launch equal code again and again; an interruption keeps what there is."""
    adapter, _ = resolve(name)
    record, sides = _prepared(adapter, benchmarks, world_size, seed, (name, name), Design())
    pairing = Pairing(adapter, world_size, sides)
    try:
        _calibrate(record, adapter, sides)
        with click.progressbar(range(launches), label="launches") as bar:
            for launch in bar:
                toss = Toss.of(seed, "measurement", launch)
                design = record.design
                record.add(
                    "measurement",
                    pairing.measure(record.benchmarks, design.pairs, design.iterations, toss, record.seen),
                )
    except KeyboardInterrupt:
        click.echo("interrupted")
    finally:
        if record.raw["measurement"]:
            record.save(file)


@main.command()
@click.option("--runs", default=20, show_default=True, help="Gates for each line of the table.")
@click.option("--benchmarks", default="step,all_reduce:1MiB", show_default=True)
@click.option("-w", "--world-size", default=2, show_default=True)
@click.option("--equal-only", is_flag=True, help="Equal code only.")
@click.option("--seed", default=1, show_default=True)
def live(runs: int, benchmarks: str, world_size: int, equal_only: bool, seed: int) -> None:
    """Real gates: equal code, and code that does 10 and 25 % more work. The lines so far are shown after each."""
    heads = ("laborious",) if equal_only else ("laborious", "laborious_10", "laborious_25")
    found: dict[tuple[str, str], Tried] = {}
    for run in range(runs):
        for head in heads:
            for benchmark in benchmarks.split(","):
                began = time.monotonic()
                record = _gate(benchmark, world_size, seed + run, ("laborious", head), timed=True)
                tried = found.setdefault((benchmark, head), Tried.none())
                (row,) = result_of(record).rows
                assert row.decision is not None
                tried.verdicts[row.decision.verdict] += 1
                tried.launches.append(sum(len(raw) for stage in record.raw.values() for raw in stage.values()))
                tried.estimates.append(row.decision.last.estimate)
                tried.seconds.append(time.monotonic() - began)
        click.echo(
            f"\nafter {run + 1} of {runs}\n\n" + _table((name, head, tried) for (name, head), tried in found.items())
        )


@main.command()
@click.option("--runs", default=20, show_default=True)
@click.option("-w", "--world-size", default=2, show_default=True)
def traffic(runs: int, world_size: int) -> None:
    """Real gates on what has no noise."""
    click.echo("| planted | benchmarks | gates | failed |\n| --- | --- | ---: | ---: |")
    for head, benchmarks in {"plain": "step,all_reduce:1MiB", **_EXTRA}.items():
        results = [
            result_of(_gate(benchmarks, world_size, run, ("plain", head), timed=False)).status() for run in range(runs)
        ]
        click.echo(f"| {head} | {benchmarks} | {runs} | {results.count(REGRESSION)} |")


def _gate(benchmarks: str, world_size: int, seed: int, planted: tuple[str, str], *, timed: bool) -> Record:
    names = [f"{PLANTED}:{name}" for name in planted]
    adapter, _ = resolve(names[1])
    record, sides = _prepared(adapter, benchmarks, world_size, seed, names, Design())
    measure(record, adapter, sides, lambda: sides[1], lambda text: None, timed=timed)
    return record


def _prepared(
    adapter: Adapter, benchmarks: str, world_size: int, seed: int, names: Sequence[str], design: Design
) -> tuple[Record, tuple[Side, Side]]:
    """A record to be filled, and two sides of this very tree, with an adapter each."""
    chosen = tuple(benchmark_named(name) for name in benchmarks.split(","))
    here = path_for(Path("/"), Path("/nowhere"), (), Path(__file__).parents[2], shared=True)
    base, head = (
        Side(side, name, Home(name, here, Path.cwd())) for side, name in zip(("base", "head"), names, strict=True)
    )
    places = Place(base.name, base.revision, {}), Place(head.name, head.revision, {})
    record = Record(adapter.name, world_size, seed, design, chosen, places, adapter.capabilities.sends_least)
    record.least = {one.name: one.least_bytes(world_size, adapter.capabilities) for one in chosen}
    return record, (base, head)


def _calibrate(record: Record, adapter: Adapter, sides: tuple[Side, Side]) -> None:
    measure(record, adapter, sides, lambda: sides[1], lambda text: None, timed=False)


def _table(rows: Iterable[tuple[str, str, Tried]]) -> str:
    return "\n".join(_lines(rows))


def _lines(rows: Iterable[tuple[str, str, Tried]]) -> Iterator[str]:
    yield "| benchmark | head | gates | failed | 95 % interval | not confirmed | undecided | found | launches | seconds each |"
    yield "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for benchmark, head, tried in rows:
        gates = tried.verdicts.total()
        low, high = clopper_pearson(tried.verdicts["fail"], gates)
        change = np.expm1(np.median(tried.estimates))
        seconds = f"{np.mean(tried.seconds):.0f}" if tried.seconds else "-"
        yield (
            f"| {benchmark} | {head} | {gates} | {tried.share('fail'):.1%} | {low:.2%} to {high:.2%} "
            f"| {tried.share('unconfirmed', 'advisory'):.1%} | {tried.share('inconclusive'):.1%} | {change:+.1%} "
            f"| {np.mean(tried.launches):.0f} | {seconds} |"
        )


def clopper_pearson(hits: int, of: int, alpha: float = 0.05) -> tuple[float, float]:
    """The exact two-sided interval of a share, by bisection on the binomial distribution."""
    low = 0.0 if not hits else _where(lambda share: 1 - _at_most(hits - 1, of, share) >= alpha / 2)
    high = 1.0 if hits == of else _where(lambda share: _at_most(hits, of, share) <= alpha / 2)
    return low, high


def _at_most(hits: int, of: int, share: float) -> float:
    if share in (0.0, 1.0):
        return 1.0 if share == 0.0 or hits >= of else 0.0
    terms = (math.log(math.comb(of, k)) + k * math.log(share) + (of - k) * math.log1p(-share) for k in range(hits + 1))
    return min(1.0, sum(map(math.exp, terms)))


def _where(reached: Callable[[float], bool]) -> float:
    """The smallest share for which `reached` holds; it goes on to hold."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


if __name__ == "__main__":
    main()
