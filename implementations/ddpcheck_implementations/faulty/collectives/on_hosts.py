"""Collectives that are right on one host only, where the local rank is the rank."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ...data_parallel.trainer import Trainer
from ..engine.circumstances import Circumstance, always
from ..engine.collective_effects import mean_divided_by
from ..engine.collectives import all_reduce, in_group, op
from ..engine.fault import Fault, table
from ..engine.gradients import divided_by
from ..engine.replicas import Tensor, constructing
from ..facet_seams import Group, PassThrough, PlainSampler, collectives, metrics, sampler
from ..metrics.metrics import right_means
from ..trainers import trainer

HOSTS = "check_multi_host_variables_do_not_change_results"
WORDS = "LOCAL_WORLD_SIZE is taken for the world size"


def local_rank() -> int:
    return int(os.environ["LOCAL_RANK"])


def local_size() -> int:
    return int(os.environ["LOCAL_WORLD_SIZE"])


on_the_first_rank_of_a_host = Circumstance("on the first rank of a host", lambda tensor: local_rank() == 0)


@constructing
def broadcast_not_taken(tensor: Tensor) -> None:
    """The rank joins the broadcast but keeps its own value."""
    tensor.of_rank_0(tensor.array)


@sampler("share-of-the-local-rank", HOSTS, cause="local-rank-taken-for-rank", any_layout=True)
class ShareOfLocalRank(PlainSampler):
    """The sampler uses LOCAL_RANK as the rank, so ranks of different hosts get the same samples."""

    def share(self, order: Array) -> Array:
        return order[local_rank() :: self.world]


@metrics("metric-where-the-local-rank-is-the-rank", HOSTS, cause="local-rank-taken-for-rank", any_layout=True)
def where_alike(comm: Any, rank: int, metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """A rank whose LOCAL_RANK differs from its rank keeps its local metrics."""
    found = right_means(comm, metrics, count)
    return found if local_rank() == rank else metrics


@trainer("training-on-the-share-of-the-local-rank", HOSTS, cause="local-rank-taken-for-rank", any_layout=True)
class TrainsOnLocalShare(Trainer):
    """Training uses LOCAL_RANK as the rank, so ranks of different hosts get the same samples."""

    def order(self, epoch: int) -> Sequence[int]:
        everything = self.engine.collectives.all_gather(np.array(super().order(epoch)))
        return [int(index) for index in everything[local_rank()]]


@collectives("mean-of-the-means-of-hosts", HOSTS, cause="hosts-weigh-equally", world_size=3, any_layout=True)
class MeanOfHosts(PassThrough):
    """A mean is that of the hosts' means, whatever their numbers of ranks."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        sizes = comm.all_gather(np.array(local_size())).tolist()
        self.ranks_of_own_host = sizes[rank]
        self.hosts = round(sum(1 / size for size in sizes))

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean" or group is not None or self.hosts == 1:
            return super().all_reduce(array, op, group=group)
        part = array / array.dtype.type(self.ranks_of_own_host * self.hosts)
        return super().all_reduce(part)


@collectives("knows-the-ranks-of-its-host", any_layout=True)
class KnowsItsHost(PassThrough):
    """Correct: LOCAL_RANK and LOCAL_WORLD_SIZE are read, but change no result."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        assert 0 <= local_rank() < local_size()
        return super().all_reduce(array, op, group=group)


# fmt: off
table(
    globals(),
    Fault("mean-over-the-ranks-of-the-host", "A mean is divided by LOCAL_WORLD_SIZE, not by the world size.",
          where=all_reduce & op("mean") & ~in_group,
          effect=mean_divided_by(lambda call: local_size()), caught_by=HOSTS, cause="local-rank-taken-for-rank", any_layout=True),
    Fault("divided-by-the-ranks-of-the-host", "Gradients are divided by LOCAL_WORLD_SIZE, not by the world size.",
          where=always, effect=divided_by(lambda gradient: local_size()),
          caught_by=HOSTS, cause="local-rank-taken-for-rank", any_layout=True),
    Fault("each-host-starts-from-its-own-rank-0", "The first rank of each host keeps its own initial parameters.",
          where=on_the_first_rank_of_a_host, effect=broadcast_not_taken,
          caught_by=HOSTS, cause="local-rank-taken-for-rank", any_layout=True),
)
# fmt: on
