"""Repeats one collective many times on one rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import job as ops
from ..seeded_values import Array
from .rank_state import RankState, Values
from .result_validation import checked_array

OFTEN = 50
"""Number of calls between two reports of progress to the driver."""


def calls(rank_state: RankState, op: ops.Calls) -> Values:
    world = rank_state.job.world_size
    values, wanted = op.values(rank_state.rank, world), op.wanted(rank_state.rank, world)
    results = None if wanted is None else np.empty_like(wanted)
    array = _array(op, world)
    call = _call(rank_state, op, array)
    for number, value in enumerate(values):
        if number % OFTEN == 0:
            rank_state.progress(rank_state.position)
        array[...] = value
        try:
            got = call()
        except Exception as error:
            error.add_note(f"in call {number} of {op.times}, counted from 0")
            raise
        if results is not None and got is not None:
            results[number] = got.reshape(-1)
    return {"results": results}


def _array(op: ops.Calls, world: int) -> Array:
    size = 2 * world if op.collective == "reduce_scatter" else 2
    return np.zeros(2 * size, op.dtype)[::2] if op.strided else np.zeros(size, op.dtype)


def _call(rank_state: RankState, op: ops.Calls, array: Array) -> Callable[[], Array | None]:
    comm, world = rank_state.collectives, rank_state.job.world_size

    def checked(got: object, *shape: int) -> Array:
        return checked_array(got, shape or (2,), array.dtype, f"{op.collective}()")

    def sent_or_received() -> Array | None:
        if rank_state.rank == 0:
            comm.send(array, world - 1)
        elif rank_state.rank == world - 1:
            return checked(comm.recv(array, 0))
        return None

    return {
        "all_reduce": lambda: checked(comm.all_reduce(array, op.reduction)),
        "all_reduce_async": lambda: checked(comm.all_reduce_async(array, op.reduction).wait()),
        "broadcast": lambda: checked(comm.broadcast(array, 0)),
        "all_gather": lambda: checked(comm.all_gather(array), world, 2),
        "reduce_scatter": lambda: checked(comm.reduce_scatter(array, op.reduction)),
        "send_recv": sent_or_received,
    }[op.collective]
