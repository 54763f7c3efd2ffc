"""Collectives of the contract over an mpi4py communicator.

MPI does the work. Left to do here: contiguous copies of strided arrays, a mean (MPI has none), minimum and
maximum that propagate NaN (MPI's own lose it, depending on the rank that holds it), and communicators for groups of ranks.
A large all-reduce is cut into pieces: MPI works with temporaries as large as the message, and those of a piece stay in the
cache, and in the process, where those of the whole are new pages each time. Its mean is not MPI's (ring.py).
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
"""One call of MPI for each: smaller ones cost more calls, and temporaries of 32 MiB go back to the system each time."""


def _propagating(function: np.ufunc) -> MPI.Op:
    """An MPI operation out of a NumPy one."""

    def combine(a: Any, b: Any, datatype: MPI.Datatype) -> None:
        mine, theirs = np.frombuffer(a, datatype.typestr), np.frombuffer(b, datatype.typestr)
        function(mine, theirs, out=theirs)

    return MPI.Op.Create(combine, commute=True)


class MpiCommunicator:
    """The collectives facet; ddpcheck.contract.adapter.Collectives documents each method."""

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
        comm, operation = self._of(group), self._operation(op)
        self._collectives += 1
        requests = [comm.Iallreduce(_IN_PLACE, piece, operation) for piece in _pieces(result)]
        return MpiHandle(requests, result, comm.Get_size() if op == "mean" else None)

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group | None = None) -> None:
        """ValueError if the array is not C-contiguous."""
        comm = self._comm if group is None else self._of(group)
        self._collectives += 1
        if op == "sum" and array.nbytes <= PIECE_BYTES:  # the most frequent call, with nothing around it
            comm.Allreduce(_IN_PLACE, array, _SUM)
            return
        large = array.nbytes > PIECE_BYTES
        if large and not array.flags.c_contiguous:  # its pieces would be those of a copy; of smaller ones MPI says so
            raise ValueError("all_reduce_in_place needs an array that is C-contiguous: pass a copy")
        operation = self._operation(op)
        if large and op == "mean":
            ring.mean(comm, array.reshape(-1))
            return
        for piece in _pieces(array):
            comm.Allreduce(_IN_PLACE, piece, operation)
        if op == "mean":
            _mean(array, comm.Get_size())

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.empty(shape, dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Group | None = None) -> Array:
        result = np.array(array, order="C")
        comm = self._of(group)
        self._collectives += 1
        comm.Bcast(result, root if group is None else tuple(group).index(root))
        return result

    def all_gather(self, array: Array, *, group: Group | None = None) -> Array:
        comm = self._of(group)
        result = np.empty((comm.Get_size(), *array.shape), array.dtype)
        self._collectives += 1
        comm.Allgather(np.ascontiguousarray(array), result)
        return result

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        comm = self._of(group)
        size = comm.Get_size()
        result = np.empty((array.shape[0] // size, *array.shape[1:]), array.dtype)
        self._collectives += 1
        comm.Reduce_scatter_block(np.ascontiguousarray(array), result, self._operation(op))
        return _mean(result, size) if op == "mean" else result

    def barrier(self, *, group: Group | None = None) -> None:
        self._collectives += 1
        self._of(group).Barrier()

    def send(self, array: Array, dest: int) -> None:
        self._comm.Send(np.ascontiguousarray(array), dest)

    def recv(self, array: Array, source: int) -> Array:
        result = np.empty(array.shape, array.dtype)
        self._comm.Recv(result, source)
        return result

    def counts(self) -> dict[str, int]:
        """Collectives begun. What MPI sends for them it does not tell, so this is no promise of counts_traffic."""
        return {"collectives": self._collectives}

    def close(self) -> None:
        """Leave MPI in order: a rank that just exits makes mpiexec report an abnormal end."""
        for comm in self._groups.values():
            comm.Free()
        if not MPI.Is_finalized():
            MPI.Finalize()

    def _of(self, group: Group | None) -> Any:
        """The communicator of a group, made once, by its members only."""
        if group is None:
            return self._comm
        members = tuple(group)
        if members not in self._groups:
            everyone = self._comm.Get_group()
            chosen = everyone.Incl(members)
            self._groups[members] = self._comm.Create_group(chosen)
            chosen.Free()
            everyone.Free()
        return self._groups[members]

    def _operation(self, op: str) -> MPI.Op:
        try:
            return self._operations[op]
        except KeyError:
            raise ValueError(f"unknown reduction {op!r}: use one of {', '.join(self._operations)}") from None


class MpiHandle:
    """MPI_Iallreduces under way."""

    def __init__(self, requests: Sequence[Any], result: Array, divisor: int | None) -> None:
        self._requests = requests
        self._result = result
        self._divisor = divisor

    def wait(self) -> Array:
        for request in self._requests:
            request.Wait()
        divisor, self._divisor = self._divisor, None  # once, however often it is waited for
        return self._result if divisor is None else _mean(self._result, divisor)


def _pieces(array: Array) -> Sequence[Array]:
    """Views of a C-contiguous array, which together are all of it."""
    if array.nbytes <= PIECE_BYTES:
        return (array,)
    flat, length = array.reshape(-1), PIECE_BYTES // array.itemsize
    return [flat[start : start + length] for start in range(0, flat.size, length)]


def _mean(total: Array, size: int) -> Array:
    """In place, so that a 0-d array stays one."""
    total /= size
    return total
