"""`ddpcheck compare mpi`: starts the ranks of mpi_ranks.py with mpiexec."""

from __future__ import annotations

import importlib.util
import sys

import click

from ddpcheck.cli.launched_ranks import run_ranks
from ddpcheck.cli.number_options import COUNT, RANKS
from ddpcheck.cli.options import usage_errors
from ddpcheck.contract import CallForm
from ddpcheck.launchers.mpi import Mpiexec
from ddpcheck.running.adapter_lookup import resolve

from ..sizes import sizes as sizes_of


@click.command("mpi")
@click.option(
    "--adapter", default="numpy_mpi", show_default=True, help="An adapter with mpi4py and all_reduce_in_place."
)
@click.option("-w", "--world-size", type=RANKS, default=2, show_default=True)
@click.option("--sizes", default="4B..25MiB", show_default=True, help="Bytes, as for bench.")
@click.option("--pairs", type=COUNT, default=40, show_default=True, help="Bursts of each side, at each size.")
def command(adapter: str, world_size: int, sizes: str, pairs: int) -> None:
    """Compare an adapter over MPI with a bare Allreduce of mpi4py.

    float32 sums, in place. The ranks run under the mpiexec beside this Python, or else on PATH. Exit status: 0 success,
    1 a rank failed, 2 usage error.
    """
    with usage_errors():
        found, full = resolve(adapter)
        if not found.capabilities.has(CallForm.IN_PLACE):
            raise ValueError(f"{found.name} does not promise in_place, which this comparison needs")
        sizes_of(sizes)
    if importlib.util.find_spec("mpi4py") is None:
        raise click.UsageError("mpi4py is not installed; install it with: pip install 'ddpcheck[mpi]'")
    program = [sys.executable, "-m", f"{__package__}.mpi_ranks", full, sizes, str(pairs)]
    sys.exit(run_ranks(Mpiexec(), program, world_size, {}))
