"""Runs an mpi4py script with the recorder installed: python -m ddpcheck.audit.mpi.record train.py ARGS."""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI

import ddpcheck.audit

from ..record import run_script
from ..recorded_process import Run
from . import mirror, recorder
from .marked_batches import Marks


def install(run: Run) -> None:
    """Replace COMM_WORLD by a recording communicator, and receive marked batches."""
    marks = Marks(run)
    made = mirror.world(run, marks) if run.mirrors else recorder.world(run, marks)
    module: Any = MPI
    module.COMM_WORLD = made
    ddpcheck.audit._marked[:] = [marks.batch]
    run.finish = MPI.Finalize
    run.note("world", backend="mpi", size=made.Get_size(), rank=made.Get_rank(), line="")


if __name__ == "__main__":
    run_script(sys.argv[1:], MPI.COMM_WORLD.Get_rank(), install)
