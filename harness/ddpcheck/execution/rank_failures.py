"""Failures of one rank, and observations of an implementation's sockets."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .. import job as ops
from ..launchers.mpi_segments import named_memory, remove_segments, still_named
from ..operations.start import OWN_FOLDER
from ..scratch_folder import make_private, temporary_folder
from . import watched_collectives
from .broken_connections import break_connections
from .process_resources import count_resources, count_resources_at_start, named_resources_at_start
from .rank_state import RankState, Values
from .sent_bytes import sent_by_connection
from .short_reads import reads_are_short, restore_reads, shorten_reads
from .small_buffers import restore_buffers, shrink_buffers

_UNTIL_ALL_CLOSED = 3.0
"""Seconds between the first and the last rank's close()."""


class ProgramEnded(BaseException):
    """An exception that ends the rank's program."""


def sleep(rank_state: RankState, op: ops.Sleep) -> Values:
    if op.rank == rank_state.rank:
        time.sleep(op.seconds)
    return {}


def raise_(rank_state: RankState, op: ops.Raise) -> Values:
    if op.rank == rank_state.rank:
        raise RuntimeError(op.message)
    return {}


def kill(rank_state: RankState, op: ops.Kill) -> Values:
    if op.rank == rank_state.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def connections_break(rank_state: RankState, op: ops.BreakConnections) -> Values:
    return {"broken": break_connections() if op.rank == rank_state.rank else 0}


def leave(rank_state: RankState, op: ops.Leave) -> Values:
    if op.rank != rank_state.rank:
        return {}
    if op.close and rank_state.facets.close is not None:
        rank_state.facets.close()
    raise ProgramEnded("the Job ends this rank's program")


def close(rank_state: RankState, op: ops.Close) -> Values:
    rank_state.named_memory = named_memory() - named_resources_at_start()
    if rank_state.facets.close is not None:
        rank_state.facets.close()
    before = count_resources_at_start()
    return {"before": before, "held": count_resources(before)}


def left(rank_state: RankState, op: ops.Left) -> Values:
    if rank_state.scratch is None or not _all_here(
        Path(rank_state.scratch), rank_state.rank, rank_state.job.world_size
    ):
        return {"files": None, "memory": None}
    files = sorted(each.name for each in temporary_folder().iterdir()) if OWN_FOLDER in os.environ else []
    memory = still_named(rank_state.named_memory)
    remove_segments(memory)
    return {"files": files, "memory": sorted(name for name, _ in memory)}


def _all_here(folder: Path, rank: int, world_size: int) -> bool:
    """Wait for the other ranks; returns whether all arrived."""
    make_private(folder)
    (folder / f"closed-{rank}").touch()
    until = time.monotonic() + _UNTIL_ALL_CLOSED
    while not all((folder / f"closed-{each}").exists() for each in range(world_size)):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def sent(rank_state: RankState, op: ops.Sent) -> Values:
    counts = rank_state.facets.counts
    return {"sent": sent_by_connection(), "counts": dict(counts()) if counts is not None else None}


def short_reads(rank_state: RankState, op: ops.ShortReads) -> Values:
    (shorten_reads if op.on else restore_reads)()
    return {"reads": reads_are_short()}


def small_buffers(rank_state: RankState, op: ops.SmallBuffers) -> Values:
    if op.on:
        return {"streams": shrink_buffers()}
    restore_buffers()
    return {"streams": 0}


def watch_collectives(rank_state: RankState, op: ops.WatchCollectives) -> Values:
    return watched_collectives.watch() if op.on else watched_collectives.end()
