"""Data-parallel training on a communicator made of NumPy and the standard library alone.

Ranks connect over TCP (rendezvous/). Ranks of one host then share memory (shared_memory/); others use sockets (connections/).
Read algorithms/ first, then communicator.py.

Start one process per terminal, on one host or several, with four variables:

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.168.0.1 MASTER_PORT=29500 python train.py

Ranks that share a processor take half the time for small arrays if they are forked from one process: their code has the same
addresses, so the branch predictor serves all of them.

NUMPY_SOCKETS_TRANSPORT forces tcp, unix (Unix-domain sockets) or shm (shared memory). The last two need all ranks on one host;
shared memory also needs an x86 processor. By default (auto) ranks use the fastest transport that works.
NUMPY_SOCKETS_ALGORITHM forces the algorithm of all-reduces where it can be used: direct, doubling, halving or ring over
sockets, express, all_add or owners_add in memory, hierarchical between hosts (algorithms/choice.py has the default).
NUMPY_SOCKETS_HOSTS=4,2 emulates hosts: 4 ranks on the first, 2 on the next, and so on, to try the algorithms between hosts.
NUMPY_SOCKETS_START_TIMEOUT (default 120) limits the seconds of the rendezvous, NUMPY_SOCKETS_TIMEOUT (default 30) the seconds
that a peer may be silent in an operation. NUMPY_SOCKETS_RUN names the run: ranks of another run at the address are refused.
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

_SENDS_LEAST = os.environ.get("NUMPY_SOCKETS_ALGORITHM") not in FOR_SMALL_ARRAYS


def connect(context: RankContext, transport: str | None = None) -> Facets:
    """Connect to the other ranks, and return the facets that work over this communicator."""
    from .start import start

    communicator = start(
        context,
        run=os.environ.get("NUMPY_SOCKETS_RUN", ""),
        start_timeout=float(os.environ.get("NUMPY_SOCKETS_START_TIMEOUT", "120")),
        timeout=float(os.environ.get("NUMPY_SOCKETS_TIMEOUT", "30")),
        transport=transport or os.environ.get("NUMPY_SOCKETS_TRANSPORT", "auto"),
        algorithm=os.environ.get("NUMPY_SOCKETS_ALGORITHM", ""),
        hosts=os.environ.get("NUMPY_SOCKETS_HOSTS", ""),
    )
    facets = numpy_facets(
        communicator, communicator.rank, communicator.world_size, communicator.close, counts=communicator.counts
    )
    lacks = {"traffic": "ranks send for others of their host"} if communicator.sends_for_others else {}
    return replace(facets, lacks=lacks)


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
    Processes(preload=(f"{__name__}.start",)),
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
