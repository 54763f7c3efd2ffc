"""A correct replica that reduces gradients in flat buckets, as most engines do, with seams for faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from .base import PlainReplica, added

Bucket = tuple[str, ...]


class BucketReplica(PlainReplica):
    """cap: bytes of one bucket; a larger tensor has a bucket of its own. Unused parameters are ready before the backward
    begins, as in torch's DistributedDataParallel, so the order of arrival differs between ranks.
    """

    cap = 128

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.layout = self.lay_out(self.network.learned[::-1])

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        super().set_trainable(layers, trainable)
        self.layout = self.lay_out(self.network.learned[::-1])

    def lay_out(self, order: Sequence[str]) -> list[Bucket]:
        """Buckets for names in this order."""
        buckets: list[Bucket] = []
        room = 0
        for name in order:
            size = self.network.parameters[name].nbytes
            if size > room:
                buckets.append(())
                room = self.cap
            buckets[-1] += (name,)
            room -= size
        return buckets

    def arrivals(self) -> list[str]:
        """Names in the order in which this rank's last backward made their gradients ready."""
        backwards = self.network.learned[::-1]
        unused = [name for name in backwards if name not in self.latest]
        return unused + [name for name in backwards if name in self.latest]

    def synchronise(self, batch_size: int) -> None:
        used = self.used_somewhere()
        reduced: dict[str, Array] = {}
        for index in self.launched():
            bucket = self.layout[index]
            reduced |= self.unpack(bucket, self.reduce_bucket(index, self.pack(bucket)))
        self.synced = added(self.synced, {name: reduced[name] for name in used})
        self.local = {}

    def launched(self) -> list[int]:
        """Indices of buckets in the order of their reduction, whatever the order of arrival."""
        return list(range(len(self.layout)))

    def pack(self, bucket: Bucket) -> Array:
        return np.concatenate([self.mine(name).reshape(-1) for name in bucket])

    def unpack(self, bucket: Bucket, flat: Array) -> dict[str, Array]:
        like = [self.network.parameters[name] for name in bucket]
        ends = list(accumulate(array.size for array in like))
        return {
            name: flat[end - array.size : end].reshape(array.shape)
            for name, array, end in zip(bucket, like, ends, strict=True)
        }

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        return np.asarray(self.comm.all_reduce(flat) / self.world, flat.dtype)


def in_order_of(arrivals: Sequence[str], buckets: Mapping[int, Bucket]) -> list[int]:
    """Indices of buckets, sorted by the arrival of their last gradient."""
    return sorted(buckets, key=lambda index: max(map(arrivals.index, buckets[index])))
