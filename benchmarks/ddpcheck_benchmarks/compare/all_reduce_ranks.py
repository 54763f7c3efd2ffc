"""The implementations in the all-reduce comparison, each with the command that starts its ranks.

    python -m ddpcheck_benchmarks.compare.all_reduce_ranks NAME WORLD_SIZE --connect ADDRESS SECRET

An MPI's ranks are started by its launcher. The others are forked from one process, as by Python's multiprocessing, or
started one by one. This matters if ranks share a processor: forked ranks have equal addresses, so after a switch
between ranks the processor's branch prediction still fits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from ddpcheck.contract.rank_context import rank_context
from ddpcheck.launchers.launcher import Launched
from ddpcheck.launchers.multiprocess import fork
from ddpcheck.launchers.processes import Processes

from .all_reduce_implementations import MAKERS, of_mpi
from .alternating_programs import Start, take_part

_MPI = {"MPI": False, "MPI, tuned": True}
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
"""With these, an MPI's temporary arrays reuse memory instead of returning it to the system."""
_END_SECONDS = 10.0


def of_python(name: str, world_size: int, *, one_by_one: bool = False) -> Callable[[Sequence[str]], Launched]:
    """One of MAKERS."""
    launcher = Processes() if one_by_one else fork()

    def start(connect: Sequence[str]) -> Launched:
        command = [sys.executable, *_rank(name, world_size, connect)]
        return launcher.start(command, world_size, _ALONE, inherit_output=True)

    return start


def of_launcher(launcher: Sequence[str], world_size: int, *, tuned: bool) -> Start:
    """An MPI with its launcher and Python."""
    name, kept = ("MPI, tuned", _KEEPING) if tuned else ("MPI", {})

    def start(connect: Sequence[str]) -> _ByMpi:
        command = [*launcher, *_rank(name, world_size, connect)]
        environment = {**os.environ, **_ALONE, **kept}
        return _ByMpi(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))

    return start


@dataclass(frozen=True)
class _ByMpi:
    process: subprocess.Popen[bytes]

    def poll(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        """Do nothing: the ranks end when their channels are closed; an MPI prints errors about killed ranks."""
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _rank(name: str, world_size: int, connect: Sequence[str]) -> list[str]:
    return ["-m", f"{__package__}.all_reduce_ranks", name, str(world_size), "--connect", *connect]


@click.command()
@click.argument("name", type=click.Choice([*MAKERS, *_MPI]))
@click.argument("world_size", type=int)
@click.option("--connect", nargs=2, required=True, help="Address and secret of the program that gives turns.")
def main(name: str, world_size: int, connect: tuple[str, str]) -> None:
    """Run one rank."""
    if name in _MPI:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        if world.size != world_size:
            raise click.UsageError(
                f"the MPI started {world.size} ranks, not {world_size}: is this the launcher of its Python?"
            )
        take_part(name, of_mpi(_MPI[name]), world.rank, world_size, *connect)
    else:
        context = rank_context()
        take_part(name, MAKERS[name](context), context.rank, world_size, *connect)
        os._exit(0)  # Gloo may abort in its destructor


if __name__ == "__main__":
    main()
