"""Replicas that lay out, fill and send buckets in ways of their own, and are correct: no check may mind them."""

from __future__ import annotations

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import fault
from ..bucketed import Bucket, BucketReplica


@fault("small-buckets")
class SmallBuckets(BucketReplica):
    """A bucket holds two or four elements; most tensors are larger than that."""

    cap = 16


@fault("one-bucket")
class OneBucket(BucketReplica):
    """All gradients travel in one bucket."""

    cap = 1 << 30


@fault("padded-buckets")
class PaddedBuckets(BucketReplica):
    """Buckets are padded with zeros to a multiple of the world size."""

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        padded = np.pad(flat, (0, -flat.size % self.world))
        return super().reduce_bucket(index, padded)[: flat.size]


@fault("two-buffers-in-turn")
class TwoInTurn(BucketReplica):
    """Each bucket has two buffers, filled in turn: while one is read by others the next backward has the other."""

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


@fault("buckets-rebuilt-together")
class RebuiltTogether(BucketReplica):
    """After each backward all ranks lay out their buckets anew, in rank 0's order of arrival."""

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        learned = self.network.learned
        order = np.array([learned.index(name) for name in self.arrivals()])
        if order.size:
            self.layout = self.lay_out([learned[index] for index in self.comm.broadcast(order)])


@fault("two-messages")
class TwoMessages(BucketReplica):
    """A coarse message first, and what it left out in a second one."""

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        rest = np.fmod(flat, flat.dtype.type(16))
        return np.asarray((self.comm.all_reduce(flat - rest) + self.comm.all_reduce(rest)) / self.world, flat.dtype)
