"""Runs collectives, and overwrites arguments and results at once: after a call they belong to the caller."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import job as ops
from ..seeded_values import Array, overwritten, poison, poison_like, unreceived
from .memory_layouts import restore_layout, with_layout
from .rank_state import RankState, Values
from .result_validation import checked_array
from .timing import measured_collective


def all_reduce(rank_state: RankState, op: ops.AllReduce) -> Values:
    if not rank_state.is_member(op.group):
        return {}
    tensor = op.tensor.on(rank_state.rank)
    if op.in_place:
        return _reduced_in_place(rank_state, op, tensor)
    argument = _argument(rank_state, op.tensor, tensor)
    if not op.wait:
        handle = rank_state.collective("all_reduce_async")(argument, op.reduction, group=op.group)
        rank_state.handles[rank_state.position] = handle, argument, tensor
        return {}
    return _result(
        rank_state,
        rank_state.collective("all_reduce")(argument, op.reduction, group=op.group),
        argument,
        tensor,
        "all_reduce()",
    )


def _argument(rank_state: RankState, tensor: ops.TensorSpec, values: Array) -> Array:
    """An array with these values in the tensor's layout: new, unless the tensor is shared."""
    if tensor.layout == "shared":
        return rank_state.shared.setdefault(tensor, values.copy())
    return with_layout(values, tensor.layout_on(rank_state.rank))


def _reduced_in_place(rank_state: RankState, op: ops.AllReduce, tensor: Array) -> Values:
    array, beside = _room(rank_state, op, tensor)
    array[...] = tensor
    before = [lies.tobytes() for lies in beside]
    rank_state.collective("all_reduce_in_place")(array, op.reduction, group=op.group)
    values: Values = {
        "result": array.copy(),
        "argument_changed": False,
        "aliases_argument": False,
        "read_only": not array.flags.writeable,
        "beside_changed": [lies.tobytes() for lies in beside] != before,
    }
    rank_state.check_later(values, "result", values["result"], array)
    return values


def _room(rank_state: RankState, op: ops.AllReduce, tensor: Array) -> tuple[Array, tuple[Array, ...]]:
    """The array to reduce in place: from empty(), one of NumPy's, perhaps a view, or the middle of an array from
    empty(); and the elements beside it.

    For the middle of an array, nothing else refers to the whole: its memory stays in use as long as a part is.
    """
    layout = op.tensor.layout_on(rank_state.rank)
    if op.tensor.layout in ("F", "strided", "columns", "reversed"):
        return with_layout(tensor, op.tensor.layout), ()
    if op.tensor.layout == "mixed" and layout == "C":
        return np.empty_like(tensor), ()
    shape = (tensor.size + 2,) if layout == "offset" else tensor.shape
    array = checked_array(rank_state.collective("empty")(shape, tensor.dtype.name), shape, tensor.dtype, "empty()")
    if layout != "offset":
        return array, ()
    poison(array)
    return array[1:-1].reshape(tensor.shape), (array[:1], array[-1:])


def wait(rank_state: RankState, op: ops.Wait) -> Values:
    if op.operation not in rank_state.handles:
        return {}
    handle, argument, tensor = rank_state.handles.pop(op.operation)
    return _result(rank_state, handle.wait(), argument, tensor, "wait()")


def broadcast(rank_state: RankState, op: ops.Broadcast) -> Values:
    if not rank_state.is_member(op.group):
        return {}
    tensor = op.tensor.on(rank_state.rank)
    given = tensor if rank_state.rank == op.root or op.tensor.layout == "shared" else poison_like(tensor)
    argument = _argument(rank_state, op.tensor, given)
    result = rank_state.collective("broadcast")(argument, op.root, group=op.group)
    return _result(rank_state, result, argument, given, "broadcast()")


def all_gather(rank_state: RankState, op: ops.AllGather) -> Values:
    if not rank_state.is_member(op.group):
        return {}
    tensor = op.tensor.on(rank_state.rank)
    argument = _argument(rank_state, op.tensor, tensor)
    shape = (len(op.group or range(rank_state.job.world_size)), *tensor.shape)
    result = rank_state.collective("all_gather")(argument, group=op.group)
    return _result(rank_state, result, argument, tensor, "all_gather()", shape)


def reduce_scatter(rank_state: RankState, op: ops.ReduceScatter) -> Values:
    if not rank_state.is_member(op.group):
        return {}
    tensor = op.tensor.on(rank_state.rank)
    argument = _argument(rank_state, op.tensor, tensor)
    size = len(op.group or range(rank_state.job.world_size))
    shape = (tensor.shape[0] // size, *tensor.shape[1:])
    result = rank_state.collective("reduce_scatter")(argument, op.reduction, group=op.group)
    return _result(rank_state, result, argument, tensor, "reduce_scatter()", shape)


def _result(
    rank_state: RankState, result: Any, argument: Array, given: Array, what: str, shape: tuple[int, ...] | None = None
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
        # argument and result are the caller's now, even if the implementation still uses them
        if rank_state.is_shared(argument):
            pass  # a shared argument is passed to other calls, too
        elif what == "wait()":  # an overwrite would hide a result that was returned too early
            rank_state.waited(restore_layout(argument))
        else:
            poison(restore_layout(argument))
        if isinstance(result, np.ndarray) and result.flags.writeable:
            # other values for each operation, so that results with shared memory show
            result[...] = left = overwritten(made.shape, given.dtype.name, rank_state.position)
    rank_state.check_later(values, "result", left, result)
    return values


def barrier(rank_state: RankState, op: ops.Barrier) -> Values:
    if rank_state.is_member(op.group):
        rank_state.collective("barrier")(group=op.group)
    return {}


def send_recv(rank_state: RankState, op: ops.SendRecv) -> Values:
    tensor = op.tensor.on(rank_state.rank)
    received: dict[str, Array] = {}
    values: Values = {"received": received, "read_only": False}
    for source, dest in op.pairs:
        if rank_state.rank == source:
            argument = _argument(rank_state, op.tensor, tensor)
            rank_state.collective("send")(argument, dest)
            if not rank_state.is_shared(argument):
                poison(restore_layout(argument))  # the sender may reuse its array, whether it was received or not
        elif rank_state.rank == dest:
            room = restore_layout(with_layout(unreceived(tensor), op.tensor.layout_on(rank_state.rank)))
            got = rank_state.collective("recv")(room, source)
            made = np.array(checked_array(got, tensor.shape, tensor.dtype, "recv()"))
            received[f"{source}>{dest}"] = made
            values["read_only"] |= not got.flags.writeable
            rank_state.check_later(values, f"received from rank {source}", made, got)
    return values


def measure_collective(rank_state: RankState, op: ops.MeasureCollective) -> Values:
    return measured_collective(
        rank_state.collectives, rank_state.facets.counts, op, rank_state.rank, rank_state.job.world_size
    )
