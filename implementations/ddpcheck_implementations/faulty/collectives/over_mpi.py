"""Wasteful traffic over MPI. Its ranks share memory, so sockets show messages only if MPI is told to use them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ddpcheck.contract import Traffic
from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.launchers.mpi import Mpiexec

from ..base import PlainReplica, facets
from ..registry import REGISTERED
from . import wasteful


@dataclass(frozen=True)
class _Connect:
    """An Adapter's connect(): the MPI reference with one facet replaced."""

    made: Any

    def __call__(self, context: RankContext) -> Facets:
        from ...numpy_mpi import connect

        reference = connect(context)
        comm, rank, world = reference.collectives, reference.rank, reference.world_size
        if issubclass(self.made, PlainReplica):
            return facets(self.made, comm, rank, world, reference.close)
        return Facets(rank=rank, world_size=world, collectives=self.made(comm, rank, world), close=reference.close)


def _over_mpi(fault: Any) -> Adapter:  # an Adapter; mypy sees the decorated class
    """The same fault over MPI. Traffic.ANY: MPI chooses its own algorithms."""
    made = next(found.made for found in REGISTERED if found.adapter is fault)
    adapter: Adapter = fault
    return replace(
        adapter,
        name=f"{adapter.name} over MPI",
        connect=_Connect(made),
        capabilities=adapter.capabilities.but(detects_dead_peer=False, traffic=Traffic.ANY),
        launcher=Mpiexec(),
        requires=("mpi4py",),
    )


whole_array_ring = _over_mpi(wasteful.WholeArrayRing)
through_one_rank = _over_mpi(wasteful.ThroughOneRank)
twice_as_wide = _over_mpi(wasteful.__dict__["SentTwiceAsWide"])
reduces_inside = _over_mpi(wasteful.__dict__["NoSyncReducesAllTheSame"])
wide_gradients = _over_mpi(wasteful.__dict__["GradientsSentAsFloat64"])
each_alone = _over_mpi(wasteful.__dict__["BucketingOff"])
