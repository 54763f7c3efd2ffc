"""Runs collectives, and overwrites arguments and results at once: they belong to the caller."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import job as ops
from ..seeded_values import Array, overwritten, poison, poison_like, unreceived
from .memory_layouts import restore_layout, with_layout
from .rank_state import RankState, Values
from .result_validation import checked_array
from .timing import measured_collective


def all_reduce(here: RankState, op: ops.AllReduce) -> Values:
    if not here.is_member(op.group):
        return {}
    tensor, comm = op.tensor.on(here.rank), here.collectives
    if op.in_place:
        return _reduced_in_place(here, op, tensor)
    argument = _argument(here, op.tensor, tensor)
    if not op.wait:
        handle = comm.all_reduce_async(argument, op.reduction, group=op.group)
        here.handles[here.position] = handle, argument, tensor
        return {}
    return _result(here, comm.all_reduce(argument, op.reduction, group=op.group), argument, tensor, "all_reduce()")


def _argument(here: RankState, tensor: ops.TensorSpec, values: Array) -> Array:
    """An array with these values, laid out as the tensor says: a new one, if it is not shared."""
    if tensor.layout == "shared":
        return here.shared.setdefault(tensor, values.copy())
    return with_layout(values, tensor.layout_on(here.rank))


def _reduced_in_place(here: RankState, op: ops.AllReduce, tensor: Array) -> Values:
    array, beside = _room(here, op, tensor)
    array[...] = tensor
    before = [lies.tobytes() for lies in beside]
    here.collectives.all_reduce_in_place(array, op.reduction, group=op.group)
    values: Values = {
        "result": array.copy(),
        "argument_changed": False,
        "aliases_argument": False,
        "read_only": not array.flags.writeable,
        "beside_changed": [lies.tobytes() for lies in beside] != before,
    }
    here.check_later(values, "result", values["result"], array)
    return values


def _room(here: RankState, op: ops.AllReduce, tensor: Array) -> tuple[Array, tuple[Array, ...]]:
    """Where to reduce in place: an array of empty(), one of NumPy's, which may be a view, or the middle of one of empty(); and
    the elements beside it.

    Of that last one nobody keeps the whole: its memory is in use as long as any part of it is.
    """
    layout = op.tensor.layout_on(here.rank)
    if op.tensor.layout in ("F", "strided", "columns", "reversed"):
        return with_layout(tensor, op.tensor.layout), ()
    if op.tensor.layout == "mixed" and layout == "C":
        return np.empty_like(tensor), ()
    shape = (tensor.size + 2,) if layout == "offset" else tensor.shape
    array = checked_array(here.collectives.empty(shape, tensor.dtype.name), shape, tensor.dtype, "empty()")
    if layout != "offset":
        return array, ()
    poison(array)
    return array[1:-1].reshape(tensor.shape), (array[:1], array[-1:])


def wait(here: RankState, op: ops.Wait) -> Values:
    if op.operation not in here.handles:
        return {}
    handle, argument, tensor = here.handles.pop(op.operation)
    return _result(here, handle.wait(), argument, tensor, "wait()")


def broadcast(here: RankState, op: ops.Broadcast) -> Values:
    if not here.is_member(op.group):
        return {}
    tensor = op.tensor.on(here.rank)
    given = tensor if here.rank == op.root or op.tensor.layout == "shared" else poison_like(tensor)
    argument = _argument(here, op.tensor, given)
    result = here.collectives.broadcast(argument, op.root, group=op.group)
    return _result(here, result, argument, given, "broadcast()")


def all_gather(here: RankState, op: ops.AllGather) -> Values:
    if not here.is_member(op.group):
        return {}
    tensor = op.tensor.on(here.rank)
    argument = _argument(here, op.tensor, tensor)
    shape = (len(op.group or range(here.job.world_size)), *tensor.shape)
    result = here.collectives.all_gather(argument, group=op.group)
    return _result(here, result, argument, tensor, "all_gather()", shape)


def reduce_scatter(here: RankState, op: ops.ReduceScatter) -> Values:
    if not here.is_member(op.group):
        return {}
    tensor = op.tensor.on(here.rank)
    argument = _argument(here, op.tensor, tensor)
    size = len(op.group or range(here.job.world_size))
    shape = (tensor.shape[0] // size, *tensor.shape[1:])
    result = here.collectives.reduce_scatter(argument, op.reduction, group=op.group)
    return _result(here, result, argument, tensor, "reduce_scatter()", shape)


def _result(
    here: RankState, result: Any, argument: Array, given: Array, what: str, shape: tuple[int, ...] | None = None
) -> Values:
    """The record of a collective: its result, and whether the argument still has the values `given`."""
    made = np.array(checked_array(result, given.shape if shape is None else shape, given.dtype, what))
    values = {
        "result": made,
        "argument_changed": argument.tobytes() != given.tobytes(),
        "aliases_argument": isinstance(result, np.ndarray) and np.may_share_memory(result, argument),
        "read_only": not result.flags.writeable,
    }
    left = made
    if not values["aliases_argument"]:
        # both are the caller's now, whoever still has to read or write them
        if here.is_shared(argument):
            pass  # other calls are given it, too
        elif what == "wait()":  # where it would hide what came too early
            here.waited(restore_layout(argument))
        else:
            poison(restore_layout(argument))
        if isinstance(result, np.ndarray) and result.flags.writeable:
            # other values for each operation: results that share their memory show
            result[...] = left = overwritten(made.shape, given.dtype.name, here.position)
    here.check_later(values, "result", left, result)
    return values


def barrier(here: RankState, op: ops.Barrier) -> Values:
    if here.is_member(op.group):
        here.collectives.barrier(group=op.group)
    return {}


def send_recv(here: RankState, op: ops.SendRecv) -> Values:
    tensor = op.tensor.on(here.rank)
    received: dict[str, Array] = {}
    values: Values = {"received": received, "read_only": False}
    for source, dest in op.pairs:
        if here.rank == source:
            argument = _argument(here, op.tensor, tensor)
            here.collectives.send(argument, dest)
            if not here.is_shared(argument):
                poison(restore_layout(argument))  # the sender may use its array again, received or not
        elif here.rank == dest:
            room = restore_layout(with_layout(unreceived(tensor), op.tensor.layout_on(here.rank)))
            got = here.collectives.recv(room, source)
            made = np.array(checked_array(got, tensor.shape, tensor.dtype, "recv()"))
            received[f"{source}>{dest}"] = made
            values["read_only"] |= not got.flags.writeable
            here.check_later(values, f"received from rank {source}", made, got)
    return values


def measure_collective(here: RankState, op: ops.MeasureCollective) -> Values:
    return measured_collective(here.collectives, here.facets.counts, op, here.rank, here.job.world_size)
