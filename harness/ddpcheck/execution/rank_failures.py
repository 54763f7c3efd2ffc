"""Mishaps of one rank, and observations of an implementation's sockets."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from .. import job as ops
from ..launchers.mpi_segments import named_memory, remove_segments, still_named
from ..operations.start import OWN_FOLDER
from .broken_connections import break_connections
from .process_resources import count_resources, count_resources_at_start, named_resources_at_start
from .rank_state import RankState, Values
from .short_reads import reads_are_short, restore_reads, shorten_reads
from .small_buffers import restore_buffers, shrink_buffers
from .sockets import sent_by_connection

_UNTIL_ALL_CLOSED = 3.0
"""Seconds between the first and the last rank's close()."""


class ProgramEnded(BaseException):
    """An exception that the rank's program does not catch."""


def sleep(here: RankState, op: ops.Sleep) -> Values:
    if op.rank == here.rank:
        time.sleep(op.seconds)
    return {}


def raise_(here: RankState, op: ops.Raise) -> Values:
    if op.rank == here.rank:
        raise RuntimeError(op.message)
    return {}


def kill(here: RankState, op: ops.Kill) -> Values:
    if op.rank == here.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def connections_break(here: RankState, op: ops.BreakConnections) -> Values:
    return {"broken": break_connections() if op.rank == here.rank else 0}


def leave(here: RankState, op: ops.Leave) -> Values:
    if op.rank != here.rank:
        return {}
    if op.close and here.facets.close is not None:
        here.facets.close()
    raise ProgramEnded("the Job ends this rank's program")


def close(here: RankState, op: ops.Close) -> Values:
    here.named_memory = named_memory() - named_resources_at_start()
    if here.facets.close is not None:
        here.facets.close()
    before = count_resources_at_start()
    return {"before": before, "held": count_resources(before)}


def left(here: RankState, op: ops.Left) -> Values:
    if here.scratch is None or not _all_here(Path(here.scratch), here.rank, here.job.world_size):
        return {"files": None, "memory": None}
    folder = Path(tempfile.gettempdir())
    files = sorted(each.name for each in folder.iterdir()) if OWN_FOLDER in os.environ else []
    memory = still_named(here.named_memory)
    remove_segments(memory)
    return {"files": files, "memory": sorted(name for name, _ in memory)}


def _all_here(folder: Path, rank: int, world_size: int) -> bool:
    """Wait for the other ranks; returns whether all arrived."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"closed-{rank}").touch()
    until = time.monotonic() + _UNTIL_ALL_CLOSED
    while not all((folder / f"closed-{each}").exists() for each in range(world_size)):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def sent(here: RankState, op: ops.Sent) -> Values:
    counts = here.facets.counts
    return {"sent": sent_by_connection(), "counts": dict(counts()) if counts is not None else None}


def short_reads(here: RankState, op: ops.ShortReads) -> Values:
    (shorten_reads if op.on else restore_reads)()
    return {"reads": reads_are_short()}


def small_buffers(here: RankState, op: ops.SmallBuffers) -> Values:
    if op.on:
        return {"streams": shrink_buffers()}
    restore_buffers()
    return {"streams": 0}
