"""The facets of the NumPy references, over one communicator. A rank imports only the facets that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpcheck.contract.adapter import Collectives, Facets
from ddpcheck.seeded_values import Array

from .metrics import aggregate_metrics
from .sampler import DistributedSampler
from .scores import compute_score
from .settings import DEFAULTS, EngineSettings
from .streams import RandomStreams

if TYPE_CHECKING:  # importing these takes a quarter of a rank's start
    from ddpcheck.contract.trainer import TrainingRun, TrainingTask
    from ddpcheck.job import OptimizerSpec
    from ddpcheck.models.spec import ModelSpec

    from .replica import DataParallel
    from .trainer import Trainer


def numpy_facets(
    collectives: Collectives,
    rank: int,
    world_size: int,
    close: Callable[[], None] | None = None,
    trainer: type[Trainer] | None = None,
    settings: EngineSettings = DEFAULTS,
    counts: Callable[[], Mapping[str, int]] | None = None,
) -> Facets:
    """Return the facets over a communicator with NumPy arrays in and out, as an adapter's connect() does.

    trainer: a class in place of Trainer. settings: the defaults of replicas. counts: the traffic counters of the communicator.
    """

    def make_sampler(length: int, *, shuffle: bool, seed: int, drop_last: bool) -> DistributedSampler:
        return DistributedSampler(length, rank, world_size, shuffle=shuffle, seed=seed, drop_last=drop_last)

    def make_replica(
        model: ModelSpec | str, initial: Mapping[str, Array], optimizer: OptimizerSpec, options: Mapping[str, Any]
    ) -> DataParallel:
        from ..numpy_network import Network, make_optimizer
        from .replica import DataParallel

        if isinstance(model, str):
            raise ValueError(f"there is no model named {model!r} here: pass a ModelSpec")
        chosen = settings.with_options(options) if options else settings
        network = Network(model, initial)
        return DataParallel(network, make_optimizer(optimizer, network.parameters), collectives, world_size, chosen)

    aggregate = partial(aggregate_metrics, collectives)

    def train(task: TrainingTask) -> TrainingRun:
        from .trainer import Engine, Trainer

        engine = Engine(rank, world_size, collectives, make_replica, make_sampler, aggregate)
        return (trainer or Trainer)(engine, task).run()

    return Facets(
        rank=rank,
        world_size=world_size,
        collectives=collectives,
        make_sampler=make_sampler,
        make_replica=make_replica,
        aggregate_metrics=aggregate,
        compute_score=partial(compute_score, collectives, rank),
        train=train,
        make_streams=partial(RandomStreams, rank),
        counts=counts,
        close=close,
    )
