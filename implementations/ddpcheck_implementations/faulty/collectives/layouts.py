"""Collectives that are wrong for some memory layouts, sizes and numbers of calls."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, dtype, first_dimension_reversed, larger, larger_bytes
from ..engine.collective_effects import (
    giving,
    instead,
    local_from,
    sending,
    sent_as,
    sent_in_memory_order,
    through,
    zero_from,
)
from ..engine.collectives import Call, all_reduce, asynchronous, broadcast, not_on_root, op, reduce_scatter
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives
from .collectives import BROADCAST, LARGE

SUM = "check_all_reduce_sums_exactly"
ALONE = "check_collectives_do_not_change_their_arguments"
SCATTERED = "check_reduce_scatter_gives_each_rank_its_block"
PAST_64_KIB = 65536
"""Bytes; larger arrays take another path."""


repeated_row = Circumstance(
    "a stride of zero", lambda call: call.array.size and call.array.ndim and not call.array.strides[0]
)


@Circumstance.of
def axes_permuted(call: Call) -> bool:
    """Neither C nor F, with three or more axes."""
    flags = call.array.flags
    return call.array.ndim > 2 and not (flags.c_contiguous or flags.f_contiguous)


@instead
def in_the_order_of_axes(call: Call) -> Array:
    """Elements are sent in memory order, and received row by row."""
    flat = call.array.copy(order="K").ravel(order="K")
    return call.changed(array=flat).run().reshape(call.array.shape)


one_past_4096 = Circumstance("4096 n + 1 elements", lambda call: call.array.size > 4096 and call.array.size % 4096 == 1)


@Circumstance.of
def rows_apart(call: Call) -> bool:
    """Contiguous rows of a wider array."""
    array = call.array
    return array.ndim == 2 and array.size > 1 and array.strides[1] == array.itemsize < array.strides[0]


@giving
def rows_in_reverse(call: Call, result: Array) -> Array:
    return result[::-1].copy()


@instead
def one_row_reduced(call: Call) -> Array:
    """Memory holds one row, and only that row is reduced."""
    result = np.array(call.array)
    result[:1] = call.changed(array=call.array[:1]).run()
    return result


def rows_close_together(call: Call) -> Array:
    array = call.array
    strides = (array.shape[1] * array.itemsize, array.itemsize)
    return np.lib.stride_tricks.as_strided(array, array.shape, strides)


@instead
def layout_kept(call: Call) -> Array:
    """Send and receive in memory order, which is right only if all ranks have the same layout."""
    flags = call.array.flags
    order: Literal["C", "F"] = "C" if flags.c_contiguous or not flags.f_contiguous else "F"
    result = call.changed(array=call.array.reshape(-1, order=order)).run()
    return np.array(result.reshape(call.array.shape, order=order))


@sending
def divided_where_it_lies(call: Call) -> Call:
    array = call.array
    array /= array.dtype.type(call.size)
    return call.changed(op="sum")


@collectives(
    "pool-of-four-results",
    ALONE,
    cause="result-buffer-reused",
)
class PoolOfFour(PassThrough):
    """Results come from a pool of four buffers, so every fourth call overwrites an earlier result."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.pool: list[Array] = []

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result = np.asarray(self.comm.all_gather(array, group=group))
        oldest = self.pool.pop(0) if len(self.pool) == 4 else result
        fits = oldest.shape == result.shape and oldest.dtype == result.dtype
        if fits:
            oldest[...] = result
        self.pool.append(oldest if fits else result)
        return self.pool[-1]


# fmt: off
table(
    globals(),
    Fault("large-products-in-the-order-of-memory",
          "Large products of arrays whose first dimension is reversed come back with rows reversed.",
          where=all_reduce & op("prod") & larger_bytes(PAST_64_KIB) & first_dimension_reversed, effect=rows_in_reverse,
          caught_by=LARGE, cause="permuted"),
    Fault("large-broadcasts-in-the-order-of-memory",
          "Broadcast of more than 64 KiB sends elements in memory order, not row by row.",
          where=broadcast & larger_bytes(PAST_64_KIB), effect=sent_in_memory_order,
          caught_by=BROADCAST, cause="permuted"),
    Fault("asynchronous-in-the-order-of-memory",
          "Asynchronous all-reduce sends elements in memory order, not row by row.",
          where=asynchronous, effect=sent_in_memory_order,
          caught_by="check_pending_all_reduces_keep_their_own_results", cause="permuted"),
    Fault("permuted-axes-in-the-order-of-memory",
          "All-reduce sends arrays of three axes that are neither C nor F in memory order.",
          where=all_reduce & axes_permuted, effect=in_the_order_of_axes,
          caught_by=SUM, cause="permuted"),
    Fault("repeated-row-reduced-once",
          "An array of stride 0 is reduced as the one row that it has in memory; other rows stay local.",
          where=all_reduce & repeated_row, effect=one_row_reduced,
          caught_by=SUM, cause="part-not-reduced"),
    Fault("row-width-for-row-stride", "All-reduce reads rows of a wider array as if they were adjacent in memory.",
          where=all_reduce & rows_apart, effect=sent_as(rows_close_together),
          caught_by=SUM, cause="unexpected-nonfinite"),
    Fault("last-chunk-of-one-element", "Broadcast in chunks of 4,096 elements omits a last chunk of one element.",
          where=broadcast & not_on_root & one_past_4096,
          effect=zero_from(lambda result: result.size - 1),
          caught_by="check_collectives_are_correct_at_every_array_size", cause="never-written"),
    Fault("layout-of-one-rank-for-all",
          "All-reduce sends arrays in memory order, which is wrong if layouts differ between ranks.",
          where=all_reduce, effect=layout_kept, caught_by=SUM,
          cause="layouts-differ-between-ranks"),
    Fault("large-means-in-place", "Means of more than 1,000 elements divide the caller's array in place.",
          where=all_reduce & op("mean") & larger(1000), effect=divided_where_it_lies,
          caught_by=ALONE, cause="works-in-argument"),
    Fault("nothing-past-4-mebibytes", "All-reduce leaves everything past 4 MiB unreduced.",
          where=all_reduce, effect=local_from(lambda call: (1 << 22) // call.array.itemsize),
          caught_by=LARGE, cause="part-not-reduced"),
    Fault("reduce-scatter-in-float32", "Reduce-scatter computes float64 arrays in float32.",
          where=reduce_scatter & dtype("float64"), effect=through("float32"),
          caught_by=SCATTERED, cause="fewer-bits"),
)
# fmt: on
