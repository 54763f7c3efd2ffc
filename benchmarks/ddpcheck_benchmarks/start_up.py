"""The time from the launch of the ranks to the end of their first collective, compared with interpreters that only
import NumPy.

    python -m ddpcheck_benchmarks.start_up numpy_sockets --world-size 4

Both are launched in turns, in the same way, and timed until all processes have ended. The difference is the time of the
adapter's imports, its rendezvous and one all-reduce of 4 bytes.
"""

from __future__ import annotations

import sys
import time

import click
import numpy as np

from ddpcheck.launchers.processes import Processes
from ddpcheck.running.adapter_lookup import reference_of, resolve

from .stats import interval

_ALONE = "import os, numpy; numpy.ones(1, 'f4'); os._exit(0)"
_FIRST = """
import os, numpy
from ddpcheck.contract.rank_context import rank_context
from {module} import {name} as adapter
adapter.connect(rank_context()).collectives.all_reduce(numpy.ones(1, 'f4'))
os._exit(0)
"""
_THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


@click.command()
@click.argument("adapter", default="numpy_sockets")
@click.option("-w", "--world-size", default=4, show_default=True)
@click.option("--launches", default=30, show_default=True, help="Of each.")
def main(adapter: str, world_size: int, launches: int) -> None:
    """Print the milliseconds of both, and of the difference, with 95 % intervals."""
    module, _, name = reference_of(resolve(adapter)[0]).partition(":")
    programs = {"NumPy only": _ALONE, adapter: _FIRST.format(module=module, name=name)}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(launches + 1):
        for name, program in programs.items():
            seconds = _launched(program, world_size)
            if turn:  # the first launch fills the file caches
                times[name].append(seconds * 1e3)
    times["difference"] = [ours - alone for alone, ours in zip(*times.values(), strict=True)]
    click.echo(f"world size {world_size}, {launches} launches of each, in turns; ms until all processes have ended\n")
    for name, found in times.items():
        low, high = interval(found)
        click.echo(f"{name:<16} {np.median(found):7.1f} ({low:.1f} to {high:.1f})")


def _launched(program: str, world_size: int) -> float:
    began = time.perf_counter()
    launched = Processes().start([sys.executable, "-c", program], world_size, _THREADS)
    try:
        if launched.wait():
            raise click.ClickException(f"a rank has failed:\n{launched.output()}")
        return time.perf_counter() - began
    finally:
        launched.kill()


if __name__ == "__main__":
    main()
