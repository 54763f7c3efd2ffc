"""The collectives facet over an mpi4py communicator.

This module adds to MPI: contiguous copies of strided arrays, the mean, minimum and maximum that propagate NaN (MPI_MIN and
MPI_MAX lose NaN, depending on the rank that holds it), and communicators of groups.

A large all-reduce is cut into pieces. MPI allocates temporaries as large as the message: those of a piece stay in the cache and
in the process's memory, those of a large array are new pages each time. A large mean is computed by ring.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ddpcheck.seeded_values import Array

from . import ring

Group = Sequence[int]

_IN_PLACE, _SUM = MPI.IN_PLACE, MPI.SUM
PIECE_BYTES = 4 << 20
"""Bytes of one MPI call: smaller pieces need more calls, and malloc returns temporaries of 32 MiB to the system each time."""


def _propagating(function: np.ufunc) -> MPI.Op:
    """Make an MPI reduction of a NumPy function that propagates NaN."""

    def combine(a: Any, b: Any, datatype: MPI.Datatype) -> None:
        mine, theirs = np.frombuffer(a, datatype.typestr), np.frombuffer(b, datatype.typestr)
        function(mine, theirs, out=theirs)

    return MPI.Op.Create(combine, commute=True)


class MpiCommunicator:
    """The collectives facet: methods as in ddpcheck.contract.adapter.Collectives."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank: int = comm.Get_rank()
        self.world_size: int = comm.Get_size()
        self._groups: dict[tuple[int, ...], Any] = {}
        self._collectives = 0
        self._operations = {
            "sum": MPI.SUM,
            "mean": MPI.SUM,
            "prod": MPI.PROD,
            "min": _propagating(np.minimum),
            "max": _propagating(np.maximum),
        }

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        result = np.array(array, order="C")
        self.all_reduce_in_place(result, op, group=group)
        return result

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group | None = None) -> MpiHandle:
        result = np.array(array, order="C")
        comm, operation = self._communicator(group), self._operation(op)
        self._collectives += 1
        requests = [comm.Iallreduce(_IN_PLACE, piece, operation) for piece in _pieces(result)]
        return MpiHandle(requests, result, comm.Get_size() if op == "mean" else None)

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group | None = None) -> None:
        """An array that is not C-contiguous is reduced in a copy, which is written back."""
        if not array.flags.c_contiguous:
            array[...] = self.all_reduce(array, op, group=group)
            return
        comm = self._comm if group is None else self._communicator(group)
        self._collectives += 1
        if op == "sum" and array.nbytes <= PIECE_BYTES:  # a fast path for the most frequent call
            comm.Allreduce(_IN_PLACE, array, _SUM)
            return
        operation = self._operation(op)
        if op == "mean" and array.nbytes > PIECE_BYTES:
            ring.mean(comm, array.reshape(-1))
            return
        for piece in _pieces(array):
            comm.Allreduce(_IN_PLACE, piece, operation)
        if op == "mean":
            _divide(array, comm.Get_size())

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.empty(shape, dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Group | None = None) -> Array:
        result = np.array(array, order="C")
        comm = self._communicator(group)
        self._collectives += 1
        comm.Bcast(result, root if group is None else tuple(group).index(root))
        return result

    def all_gather(self, array: Array, *, group: Group | None = None) -> Array:
        comm = self._communicator(group)
        result = np.empty((comm.Get_size(), *array.shape), array.dtype)
        self._collectives += 1
        comm.Allgather(np.ascontiguousarray(array), result)
        return result

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        comm = self._communicator(group)
        size = comm.Get_size()
        result = np.empty((array.shape[0] // size, *array.shape[1:]), array.dtype)
        self._collectives += 1
        comm.Reduce_scatter_block(np.ascontiguousarray(array), result, self._operation(op))
        return _divide(result, size) if op == "mean" else result

    def barrier(self, *, group: Group | None = None) -> None:
        self._collectives += 1
        self._communicator(group).Barrier()

    def send(self, array: Array, dest: int) -> None:
        self._comm.Send(np.ascontiguousarray(array), dest)

    def recv(self, array: Array, source: int) -> Array:
        result = np.empty(array.shape, array.dtype)
        self._comm.Recv(result, source)
        return result

    def counts(self) -> dict[str, int]:
        """Return the number of collectives begun. MPI does not report bytes, so counts_traffic is not promised."""
        return {"collectives": self._collectives}

    def close(self) -> None:
        """Free communicators and finalize MPI; otherwise mpiexec reports an abnormal end."""
        for comm in self._groups.values():
            comm.Free()
        if not MPI.Is_finalized():
            MPI.Finalize()

    def _communicator(self, group: Group | None) -> Any:
        """Return the communicator of a group, which its members create at their first call."""
        if group is None:
            return self._comm
        members = tuple(group)
        if members not in self._groups:
            world = self._comm.Get_group()
            chosen = world.Incl(members)
            self._groups[members] = self._comm.Create_group(chosen)
            chosen.Free()
            world.Free()
        return self._groups[members]

    def _operation(self, op: str) -> MPI.Op:
        try:
            return self._operations[op]
        except KeyError:
            raise ValueError(f"unknown reduction {op!r}: use one of {', '.join(self._operations)}") from None


class MpiHandle:
    """Handle of one or more pending MPI_Iallreduce calls."""

    def __init__(self, requests: Sequence[Any], result: Array, divisor: int | None) -> None:
        self._requests = requests
        self._result = result
        self._divisor = divisor

    def wait(self) -> Array:
        for request in self._requests:
            request.Wait()
        divisor, self._divisor = self._divisor, None  # divide once, however often wait() is called
        return self._result if divisor is None else _divide(self._result, divisor)


def _pieces(array: Array) -> Sequence[Array]:
    """Cut a C-contiguous array into views of at most PIECE_BYTES."""
    if array.nbytes <= PIECE_BYTES:
        return (array,)
    flat, length = array.reshape(-1), PIECE_BYTES // array.itemsize
    return [flat[start : start + length] for start in range(0, flat.size, length)]


def _divide(total: Array, size: int) -> Array:
    """Divide in place, so that a 0-d array stays an array."""
    total /= size
    return total
