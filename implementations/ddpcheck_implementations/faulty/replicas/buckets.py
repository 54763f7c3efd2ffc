"""Buckets that ranks lay out differently, that are filled too far, or whose parts get lost."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ddpcheck.values import Array

from ..base import PlainReplica, added, fault
from ..bucketed import Bucket, BucketReplica, in_order_of

EXACT = "check_gradients_equal_the_large_batch_exactly"
CHANGING = "check_unused_parameters_may_differ_by_rank_and_step"
SOME = "check_unused_parameters_on_some_ranks_count_as_zero"
FILLED = "check_full_and_overflowing_buckets_are_exact"
CLIPPED = "check_clipping_uses_the_global_gradient_norm"


@fault(
    "bucket-of-exactly-one-tensor",
    "check_gradients_of_every_tensor_size_are_exact",
    seen_in=("deepspeedai/DeepSpeed#4321",),
    cause="not-reduced",
)
class ExactlyOneTensor(BucketReplica):
    """What is smaller than a bucket goes into one, what is larger goes alone; what is as large as a bucket does neither."""

    cap = 4 * 16384

    def unpack(self, bucket: Bucket, flat: Array) -> dict[str, Array]:
        lost = {name for name in bucket if self.network.parameters[name].nbytes == self.cap}
        return super().unpack(bucket, flat) | {name: self.mine(name) for name in lost}


@fault("bucket-of-one-number", EXACT, cause="not-reduced")
class OneNumber(BucketReplica):
    """Buckets are so large that only a model of one number in all has a bucket of one element: it is taken for a flag."""

    cap = 1 << 20

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        return flat if flat.size == 1 else super().reduce_bucket(index, flat)


@fault(
    "none-grads-skipped-in-flatten",
    SOME,
    CHANGING,
    seen_in=("deepspeedai/DeepSpeed#291",),
    cause="unused-left-out-of-message",
)
class OnlyWhatIsThere(BucketReplica):
    """The flat buffer holds only the gradients that this rank has: ranks lay out different ones."""

    cap = 1 << 20

    def pack(self, bucket: Bucket) -> Array:
        return super().pack(self.there(bucket))

    def unpack(self, bucket: Bucket, flat: Array) -> dict[str, Array]:
        zeros = {name: np.zeros_like(self.network.parameters[name]) for name in bucket}
        return zeros | super().unpack(self.there(bucket), flat)

    def there(self, bucket: Bucket) -> Bucket:
        return tuple(name for name in bucket if name in self.local)


@fault(
    "bucket-order-from-arrival",
    CHANGING,
    SOME,
    seen_in=("pytorch/pytorch#8584", "deepspeedai/DeepSpeed#1186"),
    cause="rank-sends-other-parameter",
)
class OffsetsByArrival(BucketReplica):
    """Gradients stand in their bucket in the order in which they arrived on this rank."""

    cap = 1 << 20

    def pack(self, bucket: Bucket) -> Array:
        return super().pack(self.arrived(bucket))

    def unpack(self, bucket: Bucket, flat: Array) -> dict[str, Array]:
        return super().unpack(self.arrived(bucket), flat)

    def arrived(self, bucket: Bucket) -> Bucket:
        return tuple(name for name in self.arrivals() if name in bucket)


@fault(
    "rebuilt-layout-not-shared",
    SOME,
    CHANGING,
    seen_in=("pytorch/pytorch#35137", "pytorch/pytorch#62751"),
    cause="rank-sends-other-piece",
)
class RebuiltAlone(BucketReplica):
    """After the first backward every rank lays out its buckets anew, by its own order of arrival."""

    rebuilt = False

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        if not self.rebuilt:
            self.layout, self.rebuilt = self.lay_out(self.arrivals()), True


@fault(
    "launch-in-ready-order",
    CHANGING,
    SOME,
    seen_in=("pytorch/pytorch#72843", "deepspeedai/DeepSpeed#1186"),
    cause="rank-sends-other-parameter",
)
class LaunchedWhenReady(BucketReplica):
    """A bucket is reduced as soon as it is full, in the order in which that happens on this rank."""

    cap = 16

    def launched(self) -> list[int]:
        return in_order_of(self.arrivals(), dict(enumerate(self.layout)))


@fault("cap-in-elements-vs-bytes", FILLED, seen_in=("horovod/horovod#1604",), cause="not-reduced")
class CapInElements(BucketReplica):
    """The buffer has `cap` bytes, but is filled with up to `cap` elements: what lies beyond its end is not reduced."""

    cap = 1 << 14

    def lay_out(self, order: Sequence[str]) -> list[Bucket]:
        self.cap = type(self).cap * self.network.parameters[order[0]].itemsize if order else 0
        return super().lay_out(order)

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        end = flat.size if len(self.layout[index]) == 1 else type(self).cap // flat.itemsize
        return np.concatenate([super().reduce_bucket(index, flat[:end]), flat[end:]])


@fault(
    "padding-uninitialised",
    CLIPPED,
    seen_in=("deepspeedai/DeepSpeed#3832", "facebookresearch/fairscale#517"),
    cause="norm-too-large",
    world_size=3,
)
class DirtyPadding(BucketReplica):
    """Buckets are padded to a multiple of the world size, and clip() takes its norm of whole buckets: with what was in
    that memory, here the first element of the bucket.
    """

    def zero_grad(self) -> None:
        super().zero_grad()
        self.padding: dict[int, Array] = {}

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        padded = np.concatenate([flat, np.repeat(flat[:1], -flat.size % self.world)])
        mean = super().reduce_bucket(index, padded)
        self.padding[index] = mean[flat.size :]
        return mean[: flat.size]

    def clip(self, max_norm: float) -> float:
        found = [*self.gradients().values(), *self.padding.values()]
        squares = [np.sum(np.square(array, dtype=np.float64)) for array in found if array is not None]
        norm = float(np.sqrt(sum(map(float, squares))))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm


@fault(
    "residual-keyed-by-bucket-index",
    EXACT,
    seen_in=("pytorch/pytorch#51427", "pytorch/pytorch#49418"),
    cause="state-left-behind",
)
class ResidualByIndex(BucketReplica):
    """A first message is coarse, and what it leaves out is sent in a second one: kept by the bucket's number, under
    which there are other parameters when the buckets are made larger in between, after the second backward.
    """

    backwards = 0

    def synchronise(self, batch_size: int) -> None:
        self.residuals: dict[int, Array] = {}
        super().synchronise(batch_size)
        self.backwards += 1
        if self.backwards == 2:
            self.cap *= 4
            self.layout = self.lay_out(self.network.learned[::-1])
        for index, bucket in enumerate(self.layout):
            for name, rest in self.unpack(bucket, self.residual(index, self.pack(bucket))).items():
                if name in self.synced:
                    self.synced[name] = np.asarray(self.synced[name] + rest, rest.dtype)

    def residual(self, index: int, like: Array) -> Array:
        return np.resize(self.residuals[index], like.size) if index in self.residuals else np.zeros_like(like)

    def reduce_bucket(self, index: int, flat: Array) -> Array:
        rest = np.fmod(flat, flat.dtype.type(16))
        self.residuals[index] = super().reduce_bucket(index, rest)
        return super().reduce_bucket(index, flat - rest)


@fault(
    "packed-by-name-unpacked-by-number",
    "check_layers_unfrozen_later_are_synchronised",
    cause="unpacked-in-other-order",
)
class SortedTwice(PlainReplica):
    """All gradients of a dtype travel in one array, by names sorted as text, and come out by the numbers in them."""

    def synchronise(self, batch_size: int) -> None:
        used = self.used_somewhere()
        reduced: dict[str, Array] = {}
        for dtype in dict.fromkeys(self.mine(name).dtype for name in used):
            names = [name for name in used if self.mine(name).dtype == dtype]
            flat = self.reduce("", np.concatenate([self.mine(name).reshape(-1) for name in sorted(names)]))
            for name in sorted(names, key=_numbered):
                own, flat = flat[: self.mine(name).size], flat[self.mine(name).size :]
                reduced[name] = own.reshape(self.mine(name).shape).copy()
        self.synced, self.local = added(self.synced, reduced), {}


def _numbered(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
