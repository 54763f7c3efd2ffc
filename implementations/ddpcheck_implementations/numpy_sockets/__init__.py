"""NumPy + raw sockets: a communicator with NumPy and the standard library alone, and data-parallel training on it.

Ranks meet over TCP. Those of one host then share memory, unless they are told otherwise.

One process per terminal, on one host or several, finds the others by four variables:

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.168.0.1 MASTER_PORT=29500 python train.py

Ranks that share a processor take half the time for small arrays if one process has forked them: they lie at the same
addresses, so after a switch from one to another the processor still knows their branches.

NUMPY_SOCKETS_TRANSPORT forces one of tcp, unix (Unix-domain sockets) and shm (shared memory); the last two need all
ranks on one host, and shared memory a processor of the x86 family. By default (auto) ranks use the fastest that works.
NUMPY_SOCKETS_ALGORITHM forces the algorithm of all-reduces where it can be used: direct, doubling, halving or ring over
sockets, express, all_add or owners_add in memory, hierarchical between hosts (choice.py says which is chosen otherwise).
NUMPY_SOCKETS_HOSTS=4,2 treats ranks as if 4 were on one host, 2 on the next, and so on, to try out the algorithms between hosts.
NUMPY_SOCKETS_START_TIMEOUT (default 120) is how many seconds ranks wait for each other at the start,
NUMPY_SOCKETS_TIMEOUT (default 30) how long a peer may be silent in an operation. NUMPY_SOCKETS_RUN names the run, if
several share an address by mistake.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from ddpcheck.contract import Determinism, Traffic
from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.processes import Processes

from ..data_parallel import PROMISES, numpy_facets
from .algorithms.choice import FOR_SMALL_ARRAYS

_SENDS_LEAST = (
    not os.environ.get("NUMPY_SOCKETS_HOSTS") and os.environ.get("NUMPY_SOCKETS_ALGORITHM") not in FOR_SMALL_ARRAYS
)
"""Of ranks on several hosts some send for those beside them, so more than their share (hierarchical.py). Large arrays are sent
more than once if they must go by an algorithm for small ones.
"""


def connect(context: RankContext, transport: str | None = None) -> Facets:
    """Meet the other ranks, and hand out everything that works over this communicator."""
    from .meeting.start import start

    communicator = start(
        context,
        run=os.environ.get("NUMPY_SOCKETS_RUN", ""),
        start_timeout=float(os.environ.get("NUMPY_SOCKETS_START_TIMEOUT", "120")),
        timeout=float(os.environ.get("NUMPY_SOCKETS_TIMEOUT", "30")),
        transport=transport or os.environ.get("NUMPY_SOCKETS_TRANSPORT", "auto"),
        algorithm=os.environ.get("NUMPY_SOCKETS_ALGORITHM", ""),
        hosts=os.environ.get("NUMPY_SOCKETS_HOSTS", ""),
    )
    return numpy_facets(
        communicator, communicator.rank, communicator.world_size, communicator.close, counts=communicator.counts
    )


adapter = Adapter(
    "numpy_sockets",
    connect,
    PROMISES.but(
        dtypes=frozenset({"float16", "float32", "float64", "int32", "int64"}),
        shares_host=True,
        subgroups=True,
        asynchronous=True,
        in_place=True,
        counts_traffic=True,
        keeps_tiny_values=True,
        any_layout=True,
        writable_results=True,
        detects_dead_peer=True,
        detects_failed_peer=True,
        detects_mismatch=True,
        gives_back=True,
        restarts_in_place=True,
        closed_to_strangers=True,
        determinism=Determinism.BETWEEN_RUNS,
        traffic=Traffic.LEAST if _SENDS_LEAST else Traffic.ANY,
    ),
    Processes(preload=(f"{__name__}.meeting.start",)),
    description="NumPy network, gradients averaged in shared memory, or by ring all-reduce over TCP sockets",
)

tcp = replace(
    adapter,
    name="numpy_sockets_tcp",
    connect=partial(connect, transport="tcp"),
    description="NumPy network, gradients averaged by ring all-reduce over TCP sockets",
)

unix = replace(
    tcp,
    name="numpy_sockets_unix",
    connect=partial(connect, transport="unix"),
    description="NumPy network, gradients averaged by ring all-reduce over Unix-domain sockets",
)
