"""The gate's rate of false alarms, and the slow-downs that it finds.

    python tests/gate_study.py record --launches 300 aa.npz    real launches of equal code
    python tests/gate_study.py replay aa.npz                    gates drawn from them, with planted slow-downs
    python tests/gate_study.py live live.jsonl                  real gates: equal code, 10 and 25 % more work
    python tests/gate_study.py show live.jsonl                  their table so far
    python tests/gate_study.py traffic --runs 20                real gates: more messages, more bytes

A replay multiplies head's times, so many gates are cheap. `live` runs code that does more work
(ddpcheck_implementations/planted_regressions.py), which takes hours; it can be stopped at any time, and continues from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from gate_trials import NOT_MEASURED, Trial, table, trials_in

from ddpcheck.contract import Traffic
from ddpcheck.contract.adapter import Adapter
from ddpcheck.ranks.rank_interpreter import Interpreter
from ddpcheck.running.adapter_lookup import resolve
from ddpcheck.seeded_values import Array
from ddpcheck_benchmarks.gate.compared_revision import Side, Unusable, path_for
from ddpcheck_benchmarks.gate.decision import Design, confirm, log_ratios, looks
from ddpcheck_benchmarks.gate.gate_benchmarks import benchmark_named
from ddpcheck_benchmarks.gate.launches import Pairing, Toss
from ddpcheck_benchmarks.gate.record import MeasuredSide, Record
from ddpcheck_benchmarks.gate.result import REGRESSION, result_of
from ddpcheck_benchmarks.gate.stages import Progress, measure

PLANTED = "ddpcheck_implementations.planted_regressions"
SLOW_DOWNS = (0.0, 0.03, 0.05, 0.10, 0.25)
_LIVE = {0.0: ("plain", "plain"), 0.10: ("times_10", "times_11"), 0.25: ("times_4", "times_5")}
"""Base and head of real gates, by the additional work of head."""
_EXTRA = {"extra_all_reduce": "step", "unbucketed": "step", "doubled": "step,all_reduce:1MiB"}
_FILE = click.Path(dir_okay=False, path_type=Path)
_BEGIN, _END = "<!-- live gates -->\n", "<!-- end of live gates -->\n"


@click.group()
def main() -> None:
    """The gate's rate of false alarms, and the slow-downs that it finds."""


# ---------------------------------------------------------------------------------------------------------------- replay


@main.command()
@click.argument("file", type=_FILE)
@click.option("--draws", default=2000, show_default=True, help="Number of gates for each slow-down.")
@click.option("--seed", default=1, show_default=True)
def replay(file: Path, draws: int, seed: int) -> None:
    """Gates over recorded launches of equal code, with head's times multiplied."""
    record = Record.load_from(file)
    trials: list[Trial] = []
    for benchmark in record.benchmarks:
        raw = record.launches("measurement", benchmark.name)
        if raw is None:
            continue
        for slower in SLOW_DOWNS:
            trials += replayed(benchmark.name, log_ratios(raw), slower, draws, Design(), seed)
    click.echo(f"{file}: launches of equal code on {record.environment.cores} cores, load {record.load}\n")
    click.echo(table(trials))


def replayed(name: str, values: Array, slower: float, draws: int, design: Design, seed: int) -> list[Trial]:
    """Gates on recorded ln(head / base) of equal code. Each gate uses consecutive launches from a random one on, since
    noise persists. The side called head is drawn for each launch, as in a real gate.
    """
    rng = np.random.default_rng(seed)
    trials = []
    needed = design.looks[-1] + design.confirmations[-1]
    for draw in range(draws):
        order = (rng.integers(len(values)) + np.arange(needed)) % len(values)
        drawn = values[order] * rng.choice([-1.0, 1.0], needed) + np.log1p(slower)
        seen = looks(drawn, design)[-1]
        verdict = {"fail": "unconfirmed", "pass": "pass", "next": "inconclusive"}[seen.outcome]
        launches = seen.launches
        if seen.outcome == "fail":
            # the following launches, as in a real gate
            again = confirm(drawn[seen.launches : seen.launches + design.confirmations[-1]], design)
            launches += again.launches
            verdict = "fail" if again.outcome == "fail" else verdict
        trials.append(Trial(name, slower, draw, verdict, launches, seen.estimate))
    return trials


# ------------------------------------------------------------------------------------------------------------ real gates


@main.command("record")
@click.argument("file", type=_FILE)
@click.option("--launches", default=300, show_default=True)
@click.option("--benchmarks", default="step,all_reduce:1MiB", show_default=True)
@click.option("-w", "--world-size", default=2, show_default=True)
@click.option("--adapter", "name", default=f"{PLANTED}:plain", show_default=True)
@click.option("--seed", default=1, show_default=True)
def record_launches(file: Path, launches: int, benchmarks: str, world_size: int, name: str, seed: int) -> None:
    """Launch equal code repeatedly; an interruption keeps the launches so far."""
    adapter, _ = resolve(name)
    record, sides = _prepared(adapter, benchmarks, world_size, seed, (name, name))
    pairing = Pairing(adapter, world_size, sides)
    try:
        measure(record, adapter, sides, lambda: sides[1], Progress(), timed=False)
        with click.progressbar(range(launches), label="launches") as bar:
            for launch in bar:
                toss = Toss.of(seed, "measurement", launch)
                record.add("measurement", pairing.measure(record.benchmarks, record.design.pairs, toss, record.seen))
    except KeyboardInterrupt:
        click.echo("interrupted")
    finally:
        if record.raw["measurement"]:
            record.save(file)


@main.command()
@click.argument("file", type=_FILE)
@click.option("--equal", default=200, show_default=True, help="Number of gates on equal code, for each benchmark.")
@click.option("--slower", default=100, show_default=True, help="Number of gates on each slow-down, for each benchmark.")
@click.option("--minutes", type=float, help="Start no gate after this many.  [default: no end]")
@click.option("--benchmarks", default="step,all_reduce:1MiB", show_default=True)
@click.option("-w", "--world-size", default=2, show_default=True)
def live(file: Path, equal: int, slower: int, minutes: float | None, benchmarks: str, world_size: int) -> None:
    """Real gates that FILE does not have yet: equal code, and code that does 10 and 25 % more work.

    Each gate appends a line when it ends, so an interruption loses at most one gate. Gates that could not be measured
    are repeated in the next run.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    known = {trial.which for trial in trials_in(file) if trial.verdict != NOT_MEASURED}
    for seed in range(max(equal, slower)):
        for more in _LIVE:
            for benchmark in benchmarks.split(","):
                if seed >= (slower if more else equal) or (benchmark, more, seed) in known:
                    continue
                if end is not None and time.monotonic() > end:
                    return
                trial = _tried(benchmark, more, seed, world_size)
                trial.append_to(file)
                click.echo(
                    f"{benchmark} +{more:.0%}, gate {seed + 1}: {trial.verdict}, found {np.expm1(trial.estimate):+.1%} in "
                    f"{trial.launches} launches, {trial.seconds:.0f} s, load {trial.load:.1f} {trial.reason}"
                )


@main.command()
@click.argument("file", type=_FILE)
@click.option("--page", type=_FILE, help="Write the table into this page, such as reports/gate.md, between its marks.")
def show(file: Path, page: Path | None) -> None:
    """The table of the gates in FILE."""
    text = table(trials_in(file))
    if page is None:
        click.echo(text)
        return
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise click.UsageError(f"{page} has no place for the table: the lines {_BEGIN.strip()} and {_END.strip()}")
    page.write_text(f"{before}{begin}\n{text}\n\n{end}{after}", encoding="utf-8")


@main.command()
@click.option("--runs", default=20, show_default=True)
@click.option("-w", "--world-size", default=2, show_default=True)
def traffic(runs: int, world_size: int) -> None:
    """Real gates on quantities without noise."""
    click.echo("| planted | benchmarks | gates | failed |\n| --- | --- | ---: | ---: |")
    for head, benchmarks in {"plain": "step,all_reduce:1MiB", **_EXTRA}.items():
        results = [
            result_of(_gate(benchmarks, world_size, run, ("plain", head), timed=False)).status() for run in range(runs)
        ]
        click.echo(f"| {head} | {benchmarks} | {runs} | {results.count(REGRESSION)} |")


def _tried(benchmark: str, slower: float, seed: int, world_size: int) -> Trial:
    began, load = time.monotonic(), os.getloadavg()[0]
    try:
        record = _gate(benchmark, world_size, seed, _LIVE[slower], timed=True)
    except Unusable as error:
        reason = str(error).splitlines()[0]
        return Trial(benchmark, slower, seed, NOT_MEASURED, 0, 0.0, time.monotonic() - began, load, reason=reason)
    (row,) = result_of(record).rows
    assert row.decision is not None
    values, fresh = (
        () if raw is None else tuple(round(float(value), 5) for value in log_ratios(raw))
        for raw in (record.launches("measurement", benchmark), record.launches("confirmation", benchmark))
    )
    launches = sum(len(raw) for stage in record.raw.values() for raw in stage.values())
    estimate = row.decision.last.estimate
    return Trial(
        benchmark, slower, seed, row.decision.verdict, launches, estimate, time.monotonic() - began, load, values, fresh
    )


def _gate(benchmarks: str, world_size: int, seed: int, planted: tuple[str, str], *, timed: bool) -> Record:
    names = [f"{PLANTED}:{name}" for name in planted]
    adapter, _ = resolve(names[1])
    record, sides = _prepared(adapter, benchmarks, world_size, seed, names)
    measure(record, adapter, sides, lambda: sides[1], Progress(), timed=timed)
    return record


def _prepared(
    adapter: Adapter, benchmarks: str, world_size: int, seed: int, names: Sequence[str]
) -> tuple[Record, tuple[Side, Side]]:
    """An empty record, and two sides of this tree, each with its adapter."""
    chosen = tuple(benchmark_named(name) for name in benchmarks.split(","))
    here = path_for(Path("/"), Path("/nowhere"), (), Path(__file__).parents[2], shared=True)
    base, head = (
        Side(side, name, Interpreter(name, here, Path.cwd()))
        for side, name in zip(("base", "head"), names, strict=True)
    )
    places = MeasuredSide(base.name, base.revision, {}), MeasuredSide(head.name, head.revision, {})
    record = Record(
        adapter.name, world_size, seed, Design(), chosen, places, (adapter.capabilities.world.traffic >= Traffic.LEAST)
    )
    record.least = {one.name: one.least_bytes(world_size, adapter.capabilities) for one in chosen}
    return record, (base, head)


if __name__ == "__main__":
    main()
