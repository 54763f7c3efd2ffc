"""`python -m ddpcheck_benchmarks.hosts.expected_times RESULTS.json`: measured times beside bytes over link rate.

RESULTS.json is of `ddpcheck bench --link RATE`. An all-reduce of S bytes over N hosts has to send 2 (N - 1) / N * S bytes over
each link, so it takes at least that by the rate. Headers of jumbo frames add 0.7 %, and what is above is the implementation's.
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
    """Of an all-reduce of `size` bytes with one rank on each host and links of `rate` bytes/s, full duplex."""
    return 2 * (hosts - 1) / hosts * size / rate


def rows(measured: Mapping[str, Any]) -> Iterator[str]:
    """One for each all-reduce between hosts, out of place."""
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
        raise click.ClickException("no all-reduce between hosts in these results: ddpcheck bench --link RATE")
    click.echo("\n".join((*_HEAD, *found)))


if __name__ == "__main__":
    command(prog_name="python -m ddpcheck_benchmarks.hosts.expected_times")
