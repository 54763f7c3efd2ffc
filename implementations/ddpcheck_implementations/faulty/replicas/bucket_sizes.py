"""Replicas that are wrong for tensors larger than a bucket or for unusual bucket sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..bucketed import BucketReplica

MEAN = "check_gradients_are_the_mean_of_local_gradients"
CONSTRUCTION = "check_construction_broadcasts_parameters_from_rank_0"
LARGER = "check_gradients_larger_than_a_bucket_are_exact"
OPTIONS = "check_numeric_options_work_or_are_refused"
MIB = 1 << 20
OPTION = frozenset({"bucket_cap_mb"})


@fault("last-chunk-summed", MEAN, cause="tail-wrong")
class LastChunkSummed(PlainReplica):
    """A gradient is reduced in chunks of 8,192 elements; the last chunk, which is shorter, is not divided."""

    def reduce(self, name: str, gradient: Array) -> Array:
        flat, mean = gradient.reshape(-1), super().reduce(name, gradient).reshape(-1)
        end = flat.size // 8192 * 8192
        if end and end < flat.size:
            mean[end:] *= self.world
        return mean.reshape(gradient.shape)


@fault("last-chunk-divided-again", MEAN, cause="part-divided-again")
class LastChunkDividedAgain(PlainReplica):
    """The last chunk of 8,192 elements is in two buffers, and divided with each of them."""

    def reduce(self, name: str, gradient: Array) -> Array:
        mean = super().reduce(name, gradient).reshape(-1)
        if mean.size > 8192:
            mean[-8192:] /= self.world
        return mean.reshape(gradient.shape)


@fault("broadcast-in-whole-chunks", CONSTRUCTION, cause="own-initial-value")
class BroadcastInChunks(PlainReplica):
    """Construction broadcasts whole chunks of 1,024 elements of a large parameter; the rest stays each rank's own."""

    def start(self, model: ModelSpec) -> None:
        for array in self.network.tensors.values():
            received = self.comm.broadcast(array).reshape(-1)
            end = array.size // 1024 * 1024 or array.size
            received[end:] = array.reshape(-1)[end:]
            array[...] = received.reshape(array.shape)


@fault("slice-past-the-bucket-not-copied", LARGER, cause="part-of-large-tensor-not-reduced")
class SlicePastTheBucket(PlainReplica):
    """Of a tensor larger than a bucket of 25 MiB, only the first 25 MiB are reduced."""

    def reduce(self, name: str, gradient: Array) -> Array:
        flat, room = gradient.reshape(-1).copy(), 25 * MIB // gradient.itemsize
        flat[:room] = super().reduce(name, flat[:room])
        return flat.reshape(gradient.shape)


@fault("third-slice-left-zero", LARGER, cause="part-of-large-tensor-zero")
class TwoSlices(PlainReplica):
    """A tensor larger than a bucket is sent in two slices; the rest becomes 0."""

    def reduce(self, name: str, gradient: Array) -> Array:
        flat, room = gradient.reshape(-1), 25 * MIB // gradient.itemsize
        result = np.zeros_like(flat)
        for begin in (0, room):
            part = flat[begin : begin + room]
            if part.size or not begin:
                result[begin : begin + room] = super().reduce(name, part)
        return result.reshape(gradient.shape)


@fault("second-slice-sent-if-it-is-full", LARGER, cause="part-of-large-tensor-not-reduced")
class FullSlices(PlainReplica):
    """A bucket is sent only when full, so the rest of a tensor of one to two buckets is never sent."""

    def reduce(self, name: str, gradient: Array) -> Array:
        flat, room = gradient.reshape(-1).copy(), 25 * MIB // gradient.itemsize
        end = room if room < flat.size < 2 * room else flat.size
        flat[:end] = super().reduce(name, flat[:end])
        return flat.reshape(gradient.shape)


class SizedBuckets(BucketReplica):
    """Reduces gradients in pieces of the option bucket_cap_mb."""

    chosen = 25.0

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> None:
        super().take({name: value for name, value in options.items() if name not in OPTION})
        cls.chosen = float(options.get("bucket_cap_mb", 25.0))
        cls.check()

    @classmethod
    def check(cls) -> None:
        """Raise an error for an invalid option. Accepts all."""

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        pieces = [super(SizedBuckets, self).reduce_bucket(index, piece) for piece in self.cut(flat)]
        return np.concatenate(pieces) if pieces else flat

    def cut(self, flat: Array) -> list[Array]:
        size = int(self.chosen * MIB) // flat.itemsize
        return [flat[begin : begin + size] for begin in range(0, max(flat.size, 1), size)]


@fault("bucket-size-zero-divides", OPTIONS, cause="option-value-breaks-gradients", numeric_options=OPTION)
class ZeroDivides(SizedBuckets):
    """A bucket size of 0 is accepted and fails with a division by zero in backward."""


@fault("bucket-size-zero-never-ends", OPTIONS, cause="option-value-breaks-gradients", numeric_options=OPTION)
class ZeroNeverEnds(SizedBuckets):
    """A bucket size of 0 is accepted and makes backward loop forever."""

    between_processes = True  # a thread that loops cannot be ended

    def cut(self, flat: Array) -> list[Array]:
        size, begin, pieces = int(min(self.chosen, 2.0**20) * MIB) // flat.itemsize, 0, list[Array]()
        while begin < flat.size:
            pieces = [*pieces, flat[begin : begin + size]][-1000:]
            begin += max(0, size)
        return pieces


@fault("negative-bucket-size-reduces-nothing", OPTIONS, cause="option-value-breaks-gradients", numeric_options=OPTION)
class NegativeReducesNothing(SizedBuckets):
    """A negative bucket size is accepted, and gradients then stay local."""

    @classmethod
    def check(cls) -> None:
        if not math.isfinite(cls.chosen) or not cls.chosen:
            raise ValueError(f"bucket_cap_mb cannot be {cls.chosen}")

    def cut(self, flat: Array) -> list[Array]:
        size = int(self.chosen * MIB) // flat.itemsize or 1
        return [flat[begin : begin + size] for begin in range(0, max(flat.size, 1), size)]


@fault("bucket-size-checked-by-rank-0", OPTIONS, cause="option-refused-by-some", numeric_options=OPTION)
class CheckedByRank0(SizedBuckets):
    """Only rank 0 rejects an invalid bucket size; the other ranks wait for it."""

    between_processes = True

    def start(self, model: ModelSpec) -> None:
        if self.rank == 0 and not 1e-6 < self.chosen < 1e6:
            raise ValueError(f"bucket_cap_mb cannot be {self.chosen}")
        super().start(model)

    def cut(self, flat: Array) -> list[Array]:
        return [flat]


@fault("slice-past-a-small-bucket-not-copied", OPTIONS, cause="option-value-breaks-gradients", numeric_options=OPTION)
class SlicePastASmallBucket(SizedBuckets):
    """Only the first bucket_cap_mb of gradients are reduced; the default is 1 GiB."""

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> None:
        super().take({"bucket_cap_mb": 1024.0, **options})

    @classmethod
    def check(cls) -> None:
        if not 1e-4 < cls.chosen < 1e6:
            raise ValueError(f"bucket_cap_mb cannot be {cls.chosen}")

    def cut(self, flat: Array) -> list[Array]:
        return [flat]

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        room = int(self.chosen * MIB) // flat.itemsize
        return np.concatenate([super().reduce_bucket(index, flat[:room]), flat[room:]])


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("bucket-size-refused-unless-positive", numeric_options=OPTION)
class RefusesSizes(SizedBuckets):
    """Correct: a bucket size that is not positive raises an error at construction."""

    @classmethod
    def check(cls) -> None:
        if not 1e-6 < cls.chosen < 1e6:
            raise ArithmeticError("no such size")


@fault("bucket-size-zero-means-none", numeric_options=OPTION)
class ZeroMeansNone(SizedBuckets):
    """Correct: a bucket size that is not positive means one bucket for all gradients."""

    def cut(self, flat: Array) -> list[Array]:
        if not 2.0**-18 <= self.chosen < math.inf:
            return [flat]
        return super().cut(flat)
