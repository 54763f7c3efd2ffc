"""Correct replicas with unusual buckets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import fault
from ..bucketed import Bucket, BucketReplica
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import Made, after, around, in_place_of


@around("reduce_bucket")
def padded_to_a_multiple_of_the_world_size(
    replica: BucketReplica, reduce: Callable[[int, Array], Array], index: int, flat: Array
) -> Array:
    return reduce(index, np.pad(flat, (0, -flat.size % replica.world)))[: flat.size]


@fault("two-buffers-in-turn")
class TwoInTurn(BucketReplica):
    """Correct: each bucket has two buffers, used in turn and cleared."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.turn = 0
        self.filled: dict[tuple[Bucket, int], Array] = {}

    def pack(self, bucket: Bucket) -> Array:
        fresh = super().pack(bucket)
        kept = self.filled.setdefault((bucket, self.turn % 2), np.empty_like(fresh))
        kept[...] = fresh
        return kept

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.turn += 1


@after("synchronise")
def rebuilt_in_the_order_of_rank_0(replica: BucketReplica, batch_size: int) -> None:
    """All ranks use rank 0's order of arrival."""
    learned = replica.network.learned
    order = np.array([learned.index(name) for name in replica.arrivals()])
    if order.size:
        replica.layout = replica.lay_out([learned[index] for index in replica.comm.broadcast(order)])


@in_place_of("reduce_bucket")
def a_coarse_message_and_the_rest(replica: BucketReplica, index: int, flat: Array) -> Array:
    rest = np.fmod(flat, flat.dtype.type(16))
    total = replica.comm.all_reduce(flat - rest) + replica.comm.all_reduce(rest)
    return np.asarray(total / replica.world, flat.dtype)


# fmt: off
table(
    globals(),
    Fault("small-buckets", "Correct: buckets of 16 bytes.",
          where=always, effect=Made(BucketReplica, cap=16)),
    Fault("one-bucket", "Correct: one bucket for all gradients.",
          where=always, effect=Made(BucketReplica, cap=1 << 30)),
    Fault("padded-buckets", "Correct: buckets are padded to a multiple of the world size.",
          where=always, effect=padded_to_a_multiple_of_the_world_size.of(BucketReplica)),
    Fault("buckets-rebuilt-together", "Correct: all ranks rebuild buckets in rank 0's order of arrival.",
          where=always, effect=rebuilt_in_the_order_of_rank_0.of(BucketReplica)),
    Fault("two-messages", "Correct: each bucket is sent as a coarse message and a remainder.",
          where=always, effect=a_coarse_message_and_the_rest.of(BucketReplica)),
)
# fmt: on
