"""`python -m ddpcheck_benchmarks.hosts.expected_times RESULTS.json`: measured times beside the least times of the link.

RESULTS.json is from `ddpcheck bench --link RATE`. An all-reduce of S bytes over N hosts sends at least 2 (N - 1) / N *
S bytes over each link, and takes at least these bytes over the rate. Headers of jumbo frames add 0.7 %; the
implementation causes the rest of the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ..projection.quantities import parse_rate

_HEAD = (
    "| implementation | hosts | bytes | link | bytes over rate (ms) | measured (ms) | above | wrong elements |",
    "|---|---:|---:|---|---:|---:|---:|---:|",
)


def least_seconds(hosts: int, size: int, rate: float) -> float:
    """The least time of an all-reduce of `size` bytes with one rank per host and links of `rate` bytes/s, full
    duplex.
    """
    return 2 * (hosts - 1) / hosts * size / rate


def rows(measured: Mapping[str, Any]) -> Iterator[str]:
    """A row for each all-reduce between hosts, out of place."""
    for entry in measured["benchmarks"]:
        info = entry["extra_info"]
        if info.get("collective") != "all_reduce" or not info["link"] or info["in_place"]:
            continue
        seconds = least_seconds(info["world_size"], info["bytes"], parse_rate(info["link"]))
        got = entry["stats"]["median"]
        yield (
            f"| {info['adapter']} | {info['world_size']} | {info['bytes']:,} | {info['link']} | {seconds * 1e3:.1f} | "
            f"{got * 1e3:.1f} | {got / seconds - 1:+.1%} | {info['wrong']} |"
        )


@click.command()
@click.argument("results", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def command(results: Path) -> None:
    """Print a table of measured all-reduces beside bytes over link rate."""
    found = sorted(rows(json.loads(results.read_text(encoding="utf-8"))))
    if not found:
        raise click.ClickException(
            "no all-reduce between hosts in these results; measure one with: ddpcheck bench --link RATE"
        )
    click.echo("\n".join((*_HEAD, *found)))


if __name__ == "__main__":
    command(prog_name="python -m ddpcheck_benchmarks.hosts.expected_times")
