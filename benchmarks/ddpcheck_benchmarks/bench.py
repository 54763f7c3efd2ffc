"""`ddpcheck bench`: measures collectives and training steps of implementations side by side."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import click
from rich.console import Console

from ddpcheck.cli.console import console
from ddpcheck.cli.exit_status import ExitStatus, status_of
from ddpcheck.cli.number_options import COUNT, RANKS, SEED, FiniteNumber
from ddpcheck.cli.options import FILE, chosen_sizes, usage_errors
from ddpcheck.operations.timing import Collective
from ddpcheck.running.adapter_lookup import known_adapters, resolve
from ddpcheck.running.unknown_names import require_known

from .collective_cases import COLLECTIVES
from .consistency import judged
from .defaults import Scope
from .display import Display
from .hosts.link import Fabric
from .hosts.network import unavailable as no_hosts
from .machine import command_line
from .nccl_tests_table import legend, step_tables, tables
from .plan import Wanted
from .pytest_benchmark_records import Results
from .sizes import named
from .sizes import sizes as sizes_of
from .step_cases import MODELS
from .sweep import sweep

WRONG = 3

_OVERSUBSCRIBED = 1 << 20


@click.command("bench")
@click.argument("adapters", nargs=-1)
@chosen_sizes(" [default: 1,2,4,8; quick: 1,2]")
@click.option("--sizes", help="Sizes: 4B..1MiB (in factors of 8), or 4B,64KiB.  [default: 4B..256MiB]")
@click.option(
    "--collectives",
    help="Collectives by name, separated by commas; or all, or none.  [default: all; with --link: all_reduce]",
)
@click.option(
    "--steps",
    "models",
    help=f"Training steps of {', '.join(MODELS)}, separated by commas, or none.  [default: all but emulated; quick: "
    "small,medium; with --link: emulated]",
)
@click.option(
    "--buckets",
    help="Values of bucket_cap_mb, for implementations with that option.  [default: 0.5,1,5,25; with --link: "
    "1,25; quick: none]",
)
@click.option("--launches", type=COUNT, help="Number of launches of the ranks.  [default: 5; quick: 3; with --link: 2]")
@click.option(
    "--minutes",
    type=FiniteNumber(0, 1e6, min_open=True),
    help="Minutes after which no further measurement begins.  [default: 14; quick: 3]",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the order of sizes.")
@click.option(
    "--link",
    help="Rate of the links between emulated hosts, such as 10GbE; needs root. Steps use an emulated accelerator.",
)
@click.option(
    "--ranks-per-host", default=1, show_default=True, type=RANKS, help="Ranks on each emulated host, with --link."
)
@click.option("--quick", is_flag=True, help="Fewer sizes, world sizes and launches, for a first impression.")
@click.option("--json", "json_file", type=FILE, help="Write results in pytest-benchmark's format, after every launch.")
def command(
    adapters: tuple[str, ...],
    world_sizes: tuple[int, ...] | None,
    sizes: str | None,
    collectives: str | None,
    models: str | None,
    buckets: str | None,
    launches: int | None,
    minutes: float | None,
    seed: int,
    link: str | None,
    ranks_per_host: int,
    quick: bool,
    json_file: Path | None,
) -> None:
    """Measure ADAPTERS side by side, with clocks on the ranks.

    Every time is the median over launches of the median over iterations of the slowest rank.

    Exit status: 0 success, even if --minutes left points out; 1 something failed, or nothing was measured; 3 a
    collective gave wrong elements.
    """
    out = console()
    with usage_errors():
        if not adapters:
            raise ValueError(
                f"name an adapter to measure: {', '.join(sorted(known_adapters()))}, or your own module:attribute"
            )
        for name in adapters:
            resolve(name)
        fabric = Fabric.of(link, ranks_per_host) if link else None
        if fabric is not None and (reason := no_hosts()):
            raise ValueError(reason)
        scope = Scope.of(quick=quick, hosts=fabric is not None)
        wanted = Wanted(
            adapters,
            world_sizes or scope.world_sizes,
            _collectives(collectives or scope.collectives),
            sizes_of(sizes or scope.sizes),
            1 << 62 if sizes else _OVERSUBSCRIBED,
            _models(models or scope.steps),
            _numbers(buckets or scope.buckets),
            replace(scope.effort, launches=launches or scope.effort.launches),
            seed,
            fabric,
            minutes or scope.minutes,
        )
    results = Results({"command": command_line(), **asdict(wanted)}, json_file)
    ended: ExitStatus | None = None
    try:
        with Display(out) as display:
            sweep(wanted, results, display)
    except KeyboardInterrupt as interrupt:
        ended = status_of(interrupt)  # the measurements so far are kept, shown and saved
    results.consistency = judged(results.sorted())
    results.save()
    show(out, results)
    if results.unwritable:
        click.echo(f"Error: {results.unwritable}", err=True)
    if ended is not None:
        out.print("\ninterrupted: these results are from fewer launches", style="bold red")
        sys.exit(ended)
    status = exit_code(results)
    sys.exit(ExitStatus.UNUSABLE if results.unwritable and status == ExitStatus.WELL else status)


def show(out: Console, results: Results) -> None:
    """Print the tables and their legend, then everything else."""
    points = results.sorted()
    for block in filter(None, (*tables(points), *step_tables(points), legend(points))):
        out.print(f"\n{block}", markup=False, soft_wrap=True)
    for one in results.consistency:
        if one["verdict"] == "violated":
            text = f"{one['adapter']}, {one['world_size']} ranks, {named(one['bytes'])}: {one['rule']} does not hold"
            times = one["left"] / one["right"]
            out.print(
                f"\n{text}: the first takes {times:.2f} x as long (rank-sum test over launches, p = {one['p']:.3f})",
                markup=False,
                soft_wrap=True,
            )
    for title, lines in (("not measured", results.skipped), ("problems", results.problems)):
        for line in lines:
            out.print(
                f"\n{title}: {line}" if line is lines[0] else f"{' ' * len(title)}  {line}",
                markup=False,
                soft_wrap=True,
            )


def exit_code(results: Results) -> int:
    """The exit status: 3 for wrong elements; 1 if something failed or nothing was measured; otherwise 0."""
    if any(point.info.get("wrong") for point in results.points.values()):
        return WRONG
    return 1 if results.problems or not results.points else 0


def _collectives(text: str) -> tuple[Collective, ...]:
    if text in ("all", "none"):
        return COLLECTIVES if text == "all" else ()
    wanted = [require_known(name.strip(), COLLECTIVES, "collective") for name in text.split(",")]
    return tuple(name for name in COLLECTIVES if name in wanted)


def _models(text: str) -> tuple[str, ...]:
    if text in ("all", "none"):
        return tuple(MODELS) if text == "all" else ()
    return tuple(require_known(name.strip(), MODELS, "model") for name in text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    return () if text == "none" else tuple(float(number) for number in text.split(","))
