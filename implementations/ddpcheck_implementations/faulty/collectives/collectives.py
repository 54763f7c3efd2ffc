"""Collectives that give wrong values."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import (
    Circumstance,
    dtype,
    elements,
    fewer_elements_than_ranks,
    fewer_rows_than_ranks,
    larger,
)
from ..engine.collective_effects import (
    added_up,
    block_of_the_neighbour,
    divided_by_world_size,
    gathered_in_own_order,
    giving,
    instead,
    local_from,
    mean_divided_by,
    nan_sent_as,
    own_value,
    raises,
    sending,
    sent_in_memory_order,
    summed,
    summed_in_own_order,
    tail_kept_local,
    through,
    zero_from,
)
from ..engine.collectives import Call, all_gather, all_reduce, broadcast, in_place, op, received, reduce_scatter
from ..engine.fault import Fault, table

SUM, MEAN = "check_all_reduce_sums_exactly", "check_all_reduce_gives_the_exact_mean"
MINIMUM, MAXIMUM = "check_all_reduce_gives_the_minimum", "check_all_reduce_gives_the_maximum"
PRODUCT = "check_all_reduce_multiplies_exactly"
PRECISION = "check_all_reduce_keeps_the_precision_of_its_dtype"
REAL = "check_all_reduce_of_real_values_is_within_rounding"
BITS = "check_all_reduce_is_bitwise_equal_on_all_ranks"
AGAIN = "check_all_reduce_is_reproducible"
LARGE = "check_all_reduce_of_large_tensors_is_exact"
NAN = "check_nan_propagates_in_minimum_and_maximum"
FINITE = "check_nan_and_infinity_propagate_in_sums"
BROADCAST = "check_broadcast_gives_every_rank_the_root_array"
GATHER = "check_all_gather_stacks_in_rank_order"
SCATTER = "check_reduce_scatter_gives_each_rank_its_block"
MESSAGES = "check_send_recv_delivers_messages_unchanged"
IN_PLACE = "check_all_reduce_in_place_is_exact"
IN_PLACE_BITS = "check_all_reduce_in_place_is_bitwise_equal"
GROUPS = "check_groups_reduce_over_their_members_only"
TOGETHER = "check_concurrent_groups_are_independent"

padded_to_4 = Circumstance("no multiple of 4 elements", lambda call: call.array.size % 4)


@instead
def averaged_one_by_one(call: Call) -> Array:
    """A server averages each array with the mean of the earlier arrays."""
    return reduce(lambda held, came: np.asarray((held + came) / 2, call.array.dtype), call.gathered())


def compared(rows: Array, op: str | None) -> Array:
    """Minimum or maximum by < or >, which keeps a NaN of rank 0 only."""
    result, *others = rows
    for other in others:
        result = np.where(other < result if op == "min" else other > result, other, result)
    return np.asarray(result)


@instead
def extreme_by_comparison(call: Call) -> Array:
    return compared(call.gathered(), call.op)


@instead
def summed_in_order_of_arrival(call: Call) -> Array:
    """The order differs between runs and is the same on all ranks."""
    return added_up(np.roll(call.gathered(), call.same_kind, axis=0), call.array.dtype)


@giving
def low_bits_dropped(call: Call, result: Array) -> Array:
    """A reduced-precision mode keeps 19 of float32's 24 bits, so numbers with few bits stay right."""
    return (result.view(np.uint32) & np.uint32(0xFFFFFFE0)).view(np.float32)


@sending
def root_is_lowest_rank(call: Call) -> Call:
    return call.changed(root=call.ranks[0])


@instead
def sum_with_zeros(call: Call) -> Array:
    """All ranks but the root add zeros, so -0.0 becomes 0.0."""
    given = call.array if call.rank == call.root else np.zeros_like(call.array)
    return np.asarray(call.comm.all_reduce(given, group=call.group))


@instead
def added_to_own(call: Call) -> Array:
    """Each rank adds the other arrays to its own, so the order differs between ranks."""
    return added_up(np.roll(call.gathered(), -call.place, axis=0), call.array.dtype)


# fmt: off
table(
    globals(),
    Fault("ring-tail-dropped",
          "All-reduce leaves the last n % W elements unreduced: each rank keeps its own values there.",
          where=all_reduce, effect=tail_kept_local(lambda call: call.array.size % call.size),
          caught_by=(SUM, MAXIMUM, LARGE), cause="part-not-reduced", seen_in=("hw-native-sys/pypto#1942",)),
    Fault("ring-fewer-elements-than-ranks",
          "All-reduce returns the rank's own array when it has fewer elements than there are ranks.",
          where=all_reduce & fewer_elements_than_ranks, effect=own_value,
          caught_by=(SUM, MEAN, PRODUCT), cause="not-reduced", seen_in=("ROCm/rocm-systems#3213",)),
    Fault("ring-splits-first-dim",
          "All-reduce splits by rows, and returns the rank's own array when there are fewer rows than ranks.",
          where=all_reduce & fewer_rows_than_ranks, effect=own_value,
          caught_by=(SUM, MEAN), cause="not-reduced", seen_in=("tinygrad/tinygrad#3000",)),
    Fault("op-not-forwarded", "All-reduce ignores the requested reduction and always sums.",
          where=all_reduce, effect=summed,
          caught_by=(MINIMUM, MAXIMUM, MEAN, PRODUCT, PRECISION), cause="reduction-ignored",
          seen_in=("Lightning-AI/pytorch-lightning#9100", "horovod/horovod#2116")),
    Fault("doubles-alone-through-float32", "All-reduce computes every dtype in float32.",
          where=all_reduce, effect=through("float32"),
          caught_by=(MEAN, REAL), cause="fewer-bits",
          dtypes=frozenset({"float64"}), reductions=frozenset({"mean"})),
    Fault("avg-divides-by-numel", "A mean is the sum divided by the number of elements, not by the number of ranks.",
          where=all_reduce & op("mean"), effect=mean_divided_by(lambda call: max(1, call.array.size)),
          caught_by=(PRECISION, MEAN), cause="sum-divided-by-elements", seen_in=("meta-pytorch/torchcomms#287",)),
    Fault("running-mean", "A mean is computed as (mean so far + next array) / 2, so the last rank weighs most.",
          where=all_reduce & op("mean") & ~elements(0), effect=averaged_one_by_one,
          caught_by=MEAN, cause="running-mean", world_size=3),
    Fault("divide-by-wrong-group-size", "A mean in a group is divided by the world size.",
          where=all_reduce & op("mean"), effect=divided_by_world_size,
          caught_by=(GROUPS, TOGETHER), cause="divided-by-world-size", world_size=3,
          seen_in=("NVIDIA/Megatron-LM#906", "huggingface/transformers#39648")),
    Fault("max-min-nan-order", "Minimum and maximum use a plain comparison, which loses a NaN on some ranks.",
          where=all_reduce & op("min", "max"), effect=extreme_by_comparison,
          caught_by=NAN, cause="nan-lost", seen_in=("ml-explore/mlx#4072",)),
    Fault("nan-replaced", "Sums replace NaN by 0.",
          where=all_reduce & op("sum"), effect=nan_sent_as(0), caught_by=FINITE, cause="nan-lost"),
    Fault("transposed-output-layout",
          "All-reduce sends elements in memory order, so transposed arrays come back permuted.",
          where=all_reduce, effect=sent_in_memory_order,
          caught_by=(SUM, MAXIMUM), cause="permuted", seen_in=("pytorch/pytorch#130251",)),
    Fault("empty-tensor", "All-reduce of an array without elements raises ZeroDivisionError.",
          where=all_reduce & elements(0), effect=raises(ZeroDivisionError, "division by zero"),
          caught_by=(SUM, MINIMUM), cause="empty-array-not-handled", seen_in=("pytorch/pytorch#85234", "pytorch/gloo#179")),
    Fault("own-order-of-additions",
          "Each rank starts the sum with its own array, so the last bits differ between ranks.",
          where=all_reduce & op("sum"), effect=summed_in_own_order,
          caught_by=BITS, cause="last-bits-differ", world_size=3),
    Fault("order-of-arrival", "Arrays are summed in order of arrival, so the last bits differ from run to run.",
          where=all_reduce & op("sum"), effect=summed_in_order_of_arrival,
          caught_by=AGAIN, cause="last-bits-wrong", world_size=3, seen_in=("NVIDIA/nccl#157",)),
    Fault("float64-silently-float32", "All-reduce computes float64 arrays in float32.",
          where=all_reduce & dtype("float64"), effect=through("float32"),
          caught_by=(PRECISION, REAL), cause="fewer-bits", seen_in=("hpcaitech/ColossalAI#675",)),
    Fault("wire-downcast", "All-reduce sends float32 arrays as float16.",
          where=all_reduce & dtype("float32"), effect=through("float16", "float32"),
          caught_by=(PRECISION, REAL), cause="fewer-bits", seen_in=("NVIDIA/TransformerEngine#3555", "jax-ml/jax#27496")),
    Fault("low-bits-dropped", "All-reduce drops the lowest five bits of float32 results.",
          where=all_reduce & dtype("float32"), effect=low_bits_dropped,
          caught_by=REAL, cause="last-bits-wrong", seen_in=("NVIDIA/Megatron-LM#6199",)),
    Fault("int-counter-overflow", "All-reduce reduces only the first 262,144 elements; the rest stay local.",
          where=all_reduce & larger(1 << 18), effect=local_from(lambda call: 1 << 18),
          caught_by=LARGE, cause="part-not-reduced", seen_in=("openmc-dev/openmc#4037",)),
    Fault("wrong-root", "Broadcast ignores the root and always sends the lowest rank's array.",
          where=broadcast, effect=root_is_lowest_rank, caught_by=BROADCAST, cause="broadcast-not-received"),
    Fault("int-buffer-through-float", "Broadcast converts every array to float64 and back.",
          where=broadcast, effect=through("float64"), caught_by=BROADCAST, cause="sent-as"),
    Fault("broadcast-by-sum", "Broadcast sums the root's array with zeros from the other ranks, so -0.0 becomes 0.0.",
          where=broadcast, effect=sum_with_zeros, caught_by=BROADCAST, cause="sign-of-zero-lost"),
    Fault("gathered-in-own-order", "All-gather returns the rows beginning with the rank's own.",
          where=all_gather, effect=gathered_in_own_order,
          caught_by=GATHER, cause="rows-in-wrong-order"),
    Fault("wrong-block", "Reduce-scatter returns the block of the neighbouring rank.",
          where=reduce_scatter, effect=block_of_the_neighbour, caught_by=SCATTER, cause="other-ranks-block"),
    Fault("partial-recv", "Receive fills only the first 64 KiB of the array.",
          where=received, effect=zero_from(lambda result: 65536 // result.itemsize),
          caught_by=MESSAGES, cause="never-written", seen_in=("yahoo/CaffeOnSpark#98",)),
    Fault("in-place-of-a-copy",
          "All-reduce in place works on a padded copy when the size is no multiple of 4, and drops the result.",
          where=in_place & padded_to_4, effect=own_value,
          caught_by=IN_PLACE, cause="not-reduced", in_place=True),
    Fault("in-place-rounds-apart",
          "In-place sums add the other arrays to the rank's own, so the last bits differ between ranks.",
          where=in_place & op("sum"), effect=added_to_own,
          caught_by=IN_PLACE_BITS, in_place=True, world_size=3),
)
# fmt: on
