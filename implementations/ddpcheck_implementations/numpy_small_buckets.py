"""The NumPy references with one bucket for each parameter, reduced during backward, so that most messages overlap."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.contract.rank_context import RankContext

from . import numpy_mpi, numpy_sockets
from .data_parallel.settings import EngineSettings


@dataclass(frozen=True)
class _Connect:
    """An Adapter's connect(): a reference with other settings of the engine."""

    reference: Adapter
    settings: EngineSettings

    def __call__(self, context: RankContext) -> Facets:
        from .data_parallel import numpy_facets

        made = self.reference.connect(context)
        return numpy_facets(
            made.collectives, made.rank, made.world_size, made.close, settings=self.settings, counts=made.counts
        )


def _small_buckets(reference: Adapter) -> Adapter:
    return replace(
        reference,
        name=f"{reference.name}_small_buckets",
        capabilities=reference.capabilities.but(bundles_gradients=False),
        connect=_Connect(reference, EngineSettings(bucket_cap_mb=1e-6, overlap="on")),
        description=f"{reference.name} with one bucket for each parameter, reduced during backward",
    )


sockets = _small_buckets(numpy_sockets.adapter)
mpi = _small_buckets(numpy_mpi.adapter)
