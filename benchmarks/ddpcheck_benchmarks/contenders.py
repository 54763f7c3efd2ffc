"""The processes of each all-reduce that is compared: what starts them, and what they are.

    python -m ddpcheck_benchmarks.contenders NAME WORLD_SIZE --connect ADDRESS SECRET

An MPI's ranks are started by its launcher. The others are forked from one process, as Python's multiprocessing does it, or
started one by one. It matters where ranks share a processor: forked ones lie at the same addresses, so after a switch from one to
another the processor still knows their branches.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import click

from ddpcheck.environment import RankContext, rank_context
from ddpcheck.launchers.ports import meeting_place

from .compared import MAKERS, of_mpi
from .taking_turns import Command, take_part

_MPI = {"MPI": False, "MPI, tuned": True}
_REQUIRED = {"Gloo": "torch.distributed"}
"""What a process imports before it forks, so that its ranks need not; all have NumPy."""
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
"""An MPI's temporary arrays then come from memory that is there already."""


def of_python(name: str, world_size: int, opened: ExitStack, *, one_by_one: bool = False) -> list[Command]:
    """One of MAKERS. Its port is kept until `opened` is closed."""
    port, meeting = meeting_place({})
    opened.callback(port.release)
    world = {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size), **meeting}
    if not one_by_one:
        return [_command([sys.executable], name, world_size, world, "--fork")]
    return [
        _command([sys.executable], name, world_size, {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world_size)
    ]


def of_launcher(launcher: Sequence[str], world_size: int, *, tuned: bool) -> list[Command]:
    """An MPI: its launcher and Python."""
    name, variables = ("MPI, tuned", _KEEPING) if tuned else ("MPI", {})
    return [_command(launcher, name, world_size, variables)]


def _command(words: Sequence[str], name: str, world_size: int, variables: Mapping[str, str], *options: str) -> Command:
    rank = [*words, "-m", f"{__package__}.contenders", name, str(world_size), *options]
    return rank, {**os.environ, **_ALONE, **variables}


@click.command()
@click.argument("name", type=click.Choice([*MAKERS, *_MPI]))
@click.argument("world_size", type=int)
@click.option("--fork", is_flag=True, help="Fork all ranks from this process.")
@click.option("--connect", nargs=2, required=True, help="Address and secret of who says whose turn it is.")
def main(name: str, world_size: int, fork: bool, connect: tuple[str, str]) -> None:
    """Be a rank, or all."""
    if fork:
        _fork(name, world_size, *connect)
    else:
        _be_a_rank(name, rank_context(), world_size, *connect)


def _fork(name: str, world_size: int, address: str, secret: str) -> None:
    """Return when all have ended; if one fails, the others are ended too."""
    if name in _REQUIRED:
        importlib.import_module(_REQUIRED[name])
    here, forking = rank_context(), multiprocessing.get_context("fork")
    running: list[BaseProcess] = []
    for rank in range(world_size):
        context = RankContext(rank, world_size, rank, world_size, here.master_addr, here.master_port)
        running.append(
            forking.Process(
                target=_be_a_rank, name=f"rank {rank}", args=(name, context, world_size, address, secret), daemon=True
            )
        )
        running[-1].start()
    while running:
        wait([rank.sentinel for rank in running])
        failed = next((rank for rank in running if rank.exitcode), None)
        if failed is not None:
            sys.exit(f"{name}: {failed.name} has ended with exit status {failed.exitcode}")
        running = [rank for rank in running if rank.is_alive()]


def _be_a_rank(name: str, context: RankContext, world_size: int, address: str, secret: str) -> None:
    if name in _MPI:
        from mpi4py import MPI

        size = MPI.COMM_WORLD.size
        if size != world_size:
            raise click.UsageError(
                f"the MPI started {size} ranks, not {world_size}: is this the launcher of its Python?"
            )
    compared = of_mpi(_MPI[name]) if name in _MPI else MAKERS[name](context)
    take_part(name, compared, context.rank, world_size, address, secret)
    if name not in _MPI:
        os._exit(0)  # Gloo may abort when it is torn down


if __name__ == "__main__":
    main()
