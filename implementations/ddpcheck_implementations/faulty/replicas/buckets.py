"""Buckets with layouts that differ between ranks, or with parts that are lost or misplaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault
from ..bucketed import Bucket, BucketReplica, in_order_of
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.replicas import around, in_place_of

EXACT = "check_gradients_equal_the_large_batch_exactly"
CHANGING = "check_unused_parameters_may_differ_by_rank_and_step"
SOME = "check_unused_parameters_on_some_ranks_count_as_zero"
FILLED = "check_full_and_overflowing_buckets_are_exact"
CLIPPED = "check_clipping_uses_the_global_gradient_norm"


@around("unpack")
def tensors_of_one_buckets_size_kept_local(
    replica: BucketReplica, unpack: Callable[[Bucket, Array], dict[str, Array]], bucket: Bucket, flat: Array
) -> dict[str, Array]:
    """Smaller tensors share buckets, larger tensors have their own; tensors of exactly one bucket are left out."""
    lost = {name for name in bucket if replica.network.parameters[name].nbytes == replica.cap}
    return unpack(bucket, flat) | {name: replica.mine(name) for name in lost}


bucket_of_one_number = Circumstance("for a bucket of one number", lambda use: use.arguments[1].size == 1)


@in_place_of("reduce_bucket")
def bucket_not_reduced(replica: PlainReplica, index: int, flat: Array) -> Array:
    """The bucket is mistaken for a flag."""
    return flat


@fault(
    "none-grads-skipped-in-flatten",
    SOME,
    CHANGING,
    seen_in=("deepspeedai/DeepSpeed#291",),
    cause="unused-left-out-of-message",
)
class OnlyWhatIsThere(BucketReplica):
    """The flat buffer holds only the gradients that this rank has, so layouts differ between ranks."""

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
    """Gradients are packed in the order of arrival on each rank."""

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
    """After the first backward, each rank rebuilds its buckets by its own order of arrival."""

    rebuilt = False

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        if not self.rebuilt:
            self.layout, self.rebuilt = self.lay_out(self.arrivals()), True


@in_place_of("launched")
def launched_when_ready(replica: BucketReplica) -> list[int]:
    """Buckets in the order in which they are full on this rank."""
    return in_order_of(replica.arrivals(), dict(enumerate(replica.layout)))


@fault("cap-in-elements-vs-bytes", FILLED, seen_in=("horovod/horovod#1604",), cause="not-reduced")
class CapInElements(BucketReplica):
    """The bucket limit in bytes is used as a number of elements; elements past the end are not reduced."""

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
    """Buckets are padded with uninitialised memory, which enters the clipping norm."""

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
    """Rounding errors are stored by bucket number, so after a rebuild they join other parameters."""

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


@in_place_of("synchronise")
def packed_by_name_unpacked_by_number(replica: PlainReplica, batch_size: int) -> None:
    """One array holds all gradients of a dtype, packed by names sorted as text and unpacked in numeric order."""
    used = replica.used_somewhere()
    reduced: dict[str, Array] = {}
    for dtype in dict.fromkeys(replica.mine(name).dtype for name in used):
        names = [name for name in used if replica.mine(name).dtype == dtype]
        flat = replica.reduce("", np.concatenate([replica.mine(name).reshape(-1) for name in sorted(names)]))
        for name in sorted(names, key=_numbered):
            own, flat = flat[: replica.mine(name).size], flat[replica.mine(name).size :]
            reduced[name] = own.reshape(replica.mine(name).shape).copy()
    replica.synced, replica.local = added(replica.synced, reduced), {}


def _numbered(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


# fmt: off
table(
    globals(),
    Fault("bucket-of-exactly-one-tensor", "A tensor of exactly one bucket's size is not reduced.",
          where=always,
          effect=tensors_of_one_buckets_size_kept_local.of(BucketReplica, cap=4 * 16384),
          caught_by="check_gradients_of_every_tensor_size_are_exact", cause="not-reduced",
          seen_in=("deepspeedai/DeepSpeed#4321",)),
    Fault("bucket-of-one-number", "A bucket of one number is not reduced.",
          where=bucket_of_one_number, effect=bucket_not_reduced.of(BucketReplica, cap=1 << 20),
          caught_by=EXACT, cause="not-reduced"),
    Fault("launch-in-ready-order", "Each rank sends its buckets in the order in which they are full on that rank.",
          where=always, effect=launched_when_ready.of(BucketReplica, cap=16),
          caught_by=(CHANGING, SOME), cause="rank-sends-other-parameter",
          seen_in=("pytorch/pytorch#72843", "deepspeedai/DeepSpeed#1186")),
    Fault("packed-by-name-unpacked-by-number",
          "Gradients are packed in text order of their names but unpacked in numeric order.",
          where=always, effect=packed_by_name_unpacked_by_number,
          caught_by="check_layers_unfrozen_later_are_synchronised", cause="unpacked-in-other-order"),
)
# fmt: on
