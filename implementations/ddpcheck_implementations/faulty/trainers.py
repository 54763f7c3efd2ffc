"""The seam for faults of training runs: a fault overrides a method of the NumPy references' trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.allowed_names import TRAINER_FEATURES
from ddpcheck.contract.rank_context import RankContext

from ..data_parallel import numpy_facets
from ..data_parallel.trainer import Trainer
from .registry import Registering

PROMISED = TYPICAL.of_facets("trainer").but(
    unused_parameters="synchronised", clipping=True, trainer_features=TRAINER_FEATURES
)


def facets(made: type[Trainer], comm: Any, rank: int, world: int, close: Callable[[], None] | None = None) -> Facets:
    """One rank's facets, on any collectives."""
    reference = numpy_facets(comm, rank, world, trainer=made)
    return Facets(rank=rank, world_size=world, train=reference.train, close=close)


@dataclass(frozen=True)
class _Connect:
    """An Adapter's connect(): the sockets reference with another trainer."""

    made: type[Trainer]

    def __call__(self, context: RankContext) -> Facets:
        from ..numpy_sockets import adapter

        reference = adapter.connect(context)
        return facets(self.made, reference.collectives, context.rank, context.world_size, reference.close)


trainer: Registering[type[Trainer]] = Registering(_Connect, PROMISED)
