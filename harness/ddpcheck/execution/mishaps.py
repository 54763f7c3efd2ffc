"""What goes wrong on one rank, and looks at what an implementation does with its sockets."""

from __future__ import annotations

import os
import signal
import time

from .. import job as ops
from .footprint import held, held_at_first
from .here import Here, Values
from .short_reads import cut_reads, reads_cut, whole_reads
from .sockets import sent_by_connection


class ProgramEnded(BaseException):
    """Nobody in the rank's program catches this."""


def sleep(here: Here, op: ops.Sleep) -> Values:
    if op.rank == here.rank:
        time.sleep(op.seconds)
    return {}


def raise_(here: Here, op: ops.Raise) -> Values:
    if op.rank == here.rank:
        raise RuntimeError(op.message)
    return {}


def kill(here: Here, op: ops.Kill) -> Values:
    if op.rank == here.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


def leave(here: Here, op: ops.Leave) -> Values:
    if op.rank != here.rank:
        return {}
    if op.close and here.facets.close is not None:
        here.facets.close()
    raise ProgramEnded("this rank's program ends, as the Job says")


def close(here: Here, op: ops.Close) -> Values:
    if here.facets.close is not None:
        here.facets.close()
    before = held_at_first()
    return {"before": before, "held": held(before)}


def sent(here: Here, op: ops.Sent) -> Values:
    counts = here.facets.counts
    return {"sent": sent_by_connection(), "counts": dict(counts()) if counts is not None else None}


def short_reads(here: Here, op: ops.ShortReads) -> Values:
    (cut_reads if op.on else whole_reads)()
    return {"reads": reads_cut()}
