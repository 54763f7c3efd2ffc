"""Rank processes that end too early, that leave connections open in a child, or that belong to another world."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.rank_context import RankContext

from ..collectives.collectives import SUM
from ..engine.circumstances import elements, on_last_rank
from ..engine.collective_effects import doing
from ..engine.collectives import Call, all_reduce
from ..engine.fault import Fault, table
from ..facet_seams import PROMISED
from ..registry import connecting
from .made_before_ranks import START
from .timing import DEATH

SAID = b"terminate called after throwing an instance of 'std::length_error'\n  what():  basic_string::_M_create\n"
HELD = 60.0
"""Seconds for which a child outlives its rank. The launcher kills the child with the rank's process group."""


@doing
def process_ends(call: Call) -> None:
    os._exit(1)


@doing
def compiled_code_throws(call: Call) -> None:
    """The C++ runtime ends a process like this after an uncaught exception."""
    os.write(2, SAID)
    os._exit(128 + signal.SIGABRT)


@doing
def compiled_code_reads_freed_memory(call: Call) -> None:
    """MPI launchers and shells report a segmentation fault like this."""
    os._exit(128 + signal.SIGSEGV)


_connecting = connecting(PROMISED.of_facets("collectives"))


@_connecting("every-process-is-a-world", START, cause="world-of-its-own")
def world_of_one(context: RankContext) -> Facets:
    """connect() reads another launcher's variables, which are not set, so each process has world size 1."""
    from ...numpy_sockets import connect

    return replace(connect(replace(context, rank=0, world_size=1)), make_replica=None)


@_connecting("child-process-outlives-its-rank", DEATH, cause="child-holds-connections")
def with_a_child(context: RankContext) -> Facets:
    """A forked data worker inherits the rank's connections and keeps them open after the rank has died."""
    from ...numpy_sockets import tcp

    reference = tcp.connect(context)
    rank = os.getpid()
    child = os.fork()
    if not child:
        while os.getppid() == rank:
            time.sleep(0.02)
        time.sleep(HELD)
        os._exit(0)

    def close() -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if reference.close is not None:
            reference.close()

    return replace(reference, make_replica=None, close=close)


# fmt: off
table(
    globals(),
    Fault("empty-array-ends-the-process", "All-reduce of an array without elements ends the process of the last rank.",
          where=all_reduce & elements(0) & on_last_rank, effect=process_ends,
          caught_by=SUM, cause="rank-died"),
    Fault("empty-array-throws-in-compiled-code",
          "All-reduce of an array without elements aborts the last rank with an uncaught C++ exception.",
          where=all_reduce & elements(0) & on_last_rank, effect=compiled_code_throws,
          caught_by=SUM, cause="uncaught-compiled-error"),
    Fault("empty-array-crashes-compiled-code",
          "All-reduce of an array without elements reads freed memory on the last rank, which crashes.",
          where=all_reduce & elements(0) & on_last_rank, effect=compiled_code_reads_freed_memory,
          caught_by=SUM, cause="compiled-code-crashed"),
)
# fmt: on
