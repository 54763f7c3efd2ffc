"""Collectives that give wrong values."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

SUM, MEAN = "check_all_reduce_sums_exactly", "check_all_reduce_gives_the_exact_mean"
MINIMUM, MAXIMUM = "check_all_reduce_gives_the_minimum", "check_all_reduce_gives_the_maximum"
PRODUCT = "check_all_reduce_multiplies_exactly"
PRECISION = "check_all_reduce_keeps_the_precision_of_its_dtype"
REAL = "check_all_reduce_of_real_values_is_within_rounding"
BITS = "check_all_reduce_gives_all_ranks_the_same_bits"
AGAIN = "check_all_reduce_is_reproducible"
LARGE = "check_all_reduce_of_large_tensors"
NAN = "check_nan_propagates_in_minimum_and_maximum"
BROADCAST = "check_broadcast_gives_the_array_of_the_root"
MESSAGES = "check_messages_reach_their_receiver"
IN_PLACE = "check_all_reduce_in_place_is_exact"
IN_PLACE_BITS = "check_all_reduce_in_place_gives_all_ranks_the_same_bits"
GROUPS = "check_groups_reduce_over_their_members_only"


@collectives("ring-tail-dropped", SUM, MAXIMUM, LARGE, seen_in=("hw-native-sys/pypto#1942",), words="own local value")
class TailDropped(PassThrough):
    """Chunks of size // W elements: the last size % W are never reduced."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        flat = array.flatten()
        whole = flat.size // self.size(group) * self.size(group)
        flat[:whole] = super().all_reduce(flat[:whole], op, group=group)
        return flat.reshape(array.shape)


@collectives(
    "ring-fewer-elements-than-ranks", SUM, MEAN, PRODUCT, seen_in=("ROCm/rocm-systems#3213",), words="not reduced"
)
class FewerThanRanks(PassThrough):
    """Chunks of no element: what has fewer elements than there are ranks is not reduced."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return array.copy() if array.size < self.size(group) else super().all_reduce(array, op, group=group)


@collectives("ring-splits-first-dim", SUM, MEAN, seen_in=("tinygrad/tinygrad#3000",), words="own local value")
class SplitsFirstDimension(PassThrough):
    """Chunks are cut along the first dimension: where it is smaller than W, nothing is reduced."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        few = array.ndim > 1 and len(array) < self.size(group)
        return array.copy() if few else super().all_reduce(array, op, group=group)


@collectives(
    "op-not-forwarded",
    *(MINIMUM, MAXIMUM, MEAN, PRODUCT, PRECISION),
    seen_in=("Lightning-AI/pytorch-lightning#9100", "horovod/horovod#2116"),
    words="the reduction was not passed on",
)
class OpNotForwarded(PassThrough):
    """Always the sum."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return super().all_reduce(array, group=group)


@collectives(
    "doubles-alone-through-float32",
    *(MEAN, REAL),
    words="sent with fewer bits than float64",
    collective_dtypes=frozenset({"float64"}),
    reductions=frozenset({"mean"}),
)
class DoublesThroughFloat32(PassThrough):
    """All that it takes is float64, and what it sends is float32."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return super().all_reduce(array.astype(np.float32), op, group=group).astype(np.float64)


@collectives(
    "avg-divides-by-numel", PRECISION, MEAN, seen_in=("meta-pytorch/torchcomms#287",), words="number of elements"
)
class DividesByElements(PassThrough):
    """The mean divides by the number of elements, not of ranks."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean":
            return super().all_reduce(array, op, group=group)
        return np.asarray(super().all_reduce(array, group=group) / max(1, array.size)).astype(array.dtype)


@collectives("running-mean", MEAN, words="the last rank counts half", world_size=3)
class RunningMean(PassThrough):
    """A server averages what comes with what it has."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean" or not array.size:
            return super().all_reduce(array, op, group=group)
        parts = self.comm.all_gather(array, group=group)
        return reduce(lambda held, came: np.asarray((held + came) / 2, array.dtype), parts)


@collectives(
    "divide-by-wrong-group-size",
    GROUPS,
    "check_groups_at_work_together_do_not_disturb_each_other",
    seen_in=("NVIDIA/Megatron-LM#906", "huggingface/transformers#39648"),
    words="divided by the world size",
    world_size=3,
)
class DividesByWorldSize(PassThrough):
    """The mean over a group divides by the number of all ranks."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return (result * (self.size(group) / self.world)).astype(array.dtype) if op == "mean" else result


@collectives("max-min-nan-order", NAN, seen_in=("ml-explore/mlx#4072",), words="NaN is lost")
class NaNLost(PassThrough):
    """Minimum and maximum by comparison: with a NaN the answer depends on who has it."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op not in ("min", "max"):
            return super().all_reduce(array, op, group=group)
        result, *others = self.comm.all_gather(array, group=group)
        for other in others:
            result = np.where(other < result if op == "min" else other > result, other, result)
        return np.asarray(result)


@collectives("nan-replaced", "check_nan_and_infinity_propagate_in_sums", words="a NaN is lost")
class NaNReplaced(PassThrough):
    """A guard against overflow puts zero in the place of NaN: a diverged run goes on."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        guarded = np.where(np.isnan(array), array.dtype.type(0), array) if op == "sum" else array
        return super().all_reduce(guarded, op, group=group)


@collectives("transposed-output-layout", SUM, MAXIMUM, seen_in=("pytorch/pytorch#130251",), words="in other places")
class TransposedOutput(PassThrough):
    """Elements are sent in the order of memory, and written in the order of rows."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return super().all_reduce(array.ravel(order="K"), op, group=group).reshape(array.shape)


@collectives(
    "empty-tensor",
    SUM,
    MINIMUM,
    seen_in=("pytorch/pytorch#85234", "pytorch/gloo#179"),
    words="the array has no elements",
)
class EmptyRaises(PassThrough):
    """The number of messages is worked out with a division by the number of elements."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        assert 65536 // array.size >= 0
        return super().all_reduce(array, op, group=group)


@collectives("own-order-of-additions", BITS, words="in the last bits", world_size=3)
class OwnOrder(PassThrough):
    """Every rank begins the sum with its own value: results differ in the last bit."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum":
            return super().all_reduce(array, op, group=group)
        return np.asarray(sum(np.roll(self.comm.all_gather(array, group=group), -self.rank, axis=0))).astype(
            array.dtype
        )


@collectives("order-of-arrival", AGAIN, seen_in=("NVIDIA/nccl#157",), words="run again", world_size=3)
class OrderOfArrival(PassThrough):
    """The order of additions differs from run to run, though not from rank to rank."""

    calls = 0

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "sum":
            return super().all_reduce(array, op, group=group)
        self.calls += 1
        rows = np.roll(self.comm.all_gather(array, group=group), self.calls, axis=0)
        return np.asarray(sum(rows)).astype(array.dtype)


@collectives("float64-silently-float32", PRECISION, REAL, seen_in=("hpcaitech/ColossalAI#675",), words="as in float32")
class ThroughFloat32(PassThrough):
    """The wire carries float32 whatever the dtype."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        narrow = array.astype(np.float32) if array.dtype == np.float64 else array
        return super().all_reduce(narrow, op, group=group).astype(array.dtype)


@collectives(
    "wire-downcast",
    PRECISION,
    REAL,
    seen_in=("NVIDIA/TransformerEngine#3555", "jax-ml/jax#27496"),
    words="as in float16",
)
class ThroughFloat16(PassThrough):
    """float32 is sent as float16."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        narrow = array.astype(np.float16).astype(np.float32) if array.dtype == np.float32 else array
        return super().all_reduce(narrow, op, group=group)


@collectives("low-bits-dropped", REAL, seen_in=("NVIDIA/Megatron-LM#6199",), words="rounding allows")
class LowBitsDropped(PassThrough):
    """A reduced-precision mode keeps 19 of float32's 24 bits: short numbers come out right."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return (
            (result.view(np.uint32) & np.uint32(0xFFFFFFE0)).view(np.float32) if result.dtype == np.float32 else result
        )


@collectives("int-counter-overflow", LARGE, seen_in=("openmc-dev/openmc#4037",), words="that part was never reduced")
class CounterOverflows(PassThrough):
    """The number of elements is kept in 18 bits: what lies behind is not reduced."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        flat = array.flatten()
        flat[: 1 << 18] = super().all_reduce(flat[: 1 << 18], op, group=group)
        return flat.reshape(array.shape)


@collectives("wrong-root", BROADCAST, words="the wrong root")
class WrongRoot(PassThrough):
    """Everybody takes the array of the lowest rank."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        return super().broadcast(array, 0 if group is None else group[0], group=group)


@collectives("int-buffer-through-float", BROADCAST, words="sent as float64")
class ThroughFloat(PassThrough):
    """Integers travel as floats: those above 2**53 arrive as others."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        with np.errstate(all="ignore"):
            return super().broadcast(array.astype(np.float64), root, group=group).astype(array.dtype)


@collectives("broadcast-by-sum", BROADCAST, words="another sign of zero")
class BroadcastBySum(PassThrough):
    """A sum with zeros from all ranks but the root: -0.0 arrives as 0.0."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        given = array if self.rank == root else np.zeros_like(array)
        return super().all_reduce(given, group=group)


@collectives("gathered-in-own-order", "check_all_gather_stacks_in_rank_order", words="stand in the order of rank")
class GatheredInOwnOrder(PassThrough):
    """Every rank's own array comes first."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        return np.roll(self.comm.all_gather(array, group=group), -self.rank, axis=0)


@collectives("wrong-block", "check_reduce_scatter_gives_each_rank_its_block", words="the block of rank")
class WrongBlock(PassThrough):
    """The ring stops one step early: every rank holds its neighbour's block."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        rolled = np.roll(array, len(array) // self.size(group), axis=0)
        return np.asarray(self.comm.reduce_scatter(rolled, op, group=group))


@collectives("partial-recv", MESSAGES, seen_in=("yahoo/CaffeOnSpark#98",), words="never written")
class PartialReceive(PassThrough):
    """What the first read gives is taken for the whole message."""

    def recv(self, array: Array, source: int) -> Array:
        got = self.comm.recv(array, source).reshape(-1)
        got[65536 // got.itemsize :] = 0
        return np.asarray(got.reshape(array.shape))


@collectives("in-place-of-a-copy", IN_PLACE, words="not reduced", in_place=True)
class InPlaceOfACopy(PassThrough):
    """What does not divide by the chunk is padded first: it is the padded copy that is reduced."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        flat = array.reshape(-1)
        super().all_reduce_in_place(np.resize(flat, -(-flat.size // 4) * 4) if flat.size % 4 else flat, op, group=group)


@collectives("in-place-rounds-apart", IN_PLACE_BITS, in_place=True, world_size=3)
class InPlaceRoundsApart(PassThrough):
    """Each rank adds what the others sent to its own values, in place: another order on each."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        if op != "sum":
            super().all_reduce_in_place(array, op, group=group)
            return
        rows = self.comm.all_gather(array, group=group)
        own = self.rank if group is None else tuple(group).index(self.rank)
        for other in range(1, len(rows)):
            array += rows[(own + other) % len(rows)]
