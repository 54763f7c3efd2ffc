"""Collectives of the contract over an mpi4py communicator.

MPI does the work; what is left to do here: contiguous copies of what may be strided, a mean (MPI has none), minimum and
maximum that propagate NaN (MPI's own lose it, depending on the rank that holds it), and communicators for groups of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from ddpcheck.values import Array

Group = Sequence[int]


def _propagating(function: np.ufunc) -> MPI.Op:
    """An MPI operation out of a NumPy one."""

    def combine(a: Any, b: Any, datatype: MPI.Datatype) -> None:
        mine, theirs = np.frombuffer(a, datatype.typestr), np.frombuffer(b, datatype.typestr)
        function(mine, theirs, out=theirs)

    return MPI.Op.Create(combine, commute=True)


class MpiCommunicator:
    """The collectives facet; see ddpcheck.adapter.Collectives for what each method promises."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank: int = comm.Get_rank()
        self.world_size: int = comm.Get_size()
        self._groups: dict[tuple[int, ...], Any] = {}
        self._operations = {
            "sum": MPI.SUM,
            "mean": MPI.SUM,
            "prod": MPI.PROD,
            "min": _propagating(np.minimum),
            "max": _propagating(np.maximum),
        }

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        result = np.array(array, order="C")
        comm = self._of(group)
        comm.Allreduce(MPI.IN_PLACE, result, self._operation(op))
        return _mean(result, comm.Get_size()) if op == "mean" else result

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group | None = None) -> MpiHandle:
        result = np.array(array, order="C")
        comm = self._of(group)
        request = comm.Iallreduce(MPI.IN_PLACE, result, self._operation(op))
        return MpiHandle(request, result, comm.Get_size() if op == "mean" else None)

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group | None = None) -> None:
        comm = self._of(group)
        comm.Allreduce(MPI.IN_PLACE, array, self._operation(op))
        if op == "mean":
            array /= comm.Get_size()

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return np.empty(shape, dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Group | None = None) -> Array:
        result = np.array(array, order="C")
        self._of(group).Bcast(result, root if group is None else tuple(group).index(root))
        return result

    def all_gather(self, array: Array, *, group: Group | None = None) -> Array:
        comm = self._of(group)
        result = np.empty((comm.Get_size(), *array.shape), array.dtype)
        comm.Allgather(np.ascontiguousarray(array), result)
        return result

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        comm = self._of(group)
        size = comm.Get_size()
        result = np.empty((array.shape[0] // size, *array.shape[1:]), array.dtype)
        comm.Reduce_scatter_block(np.ascontiguousarray(array), result, self._operation(op))
        return _mean(result, size) if op == "mean" else result

    def barrier(self, *, group: Group | None = None) -> None:
        self._of(group).Barrier()

    def send(self, array: Array, dest: int) -> None:
        self._comm.Send(np.ascontiguousarray(array), dest)

    def recv(self, array: Array, source: int) -> Array:
        result = np.empty(array.shape, array.dtype)
        self._comm.Recv(result, source)
        return result

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
    """An MPI_Iallreduce under way."""

    def __init__(self, request: Any, result: Array, divisor: int | None) -> None:
        self._request = request
        self._result = result
        self._divisor = divisor

    def wait(self) -> Array:
        self._request.Wait()
        divisor, self._divisor = self._divisor, None  # once, however often it is waited for
        return self._result if divisor is None else _mean(self._result, divisor)


def _mean(total: Array, size: int) -> Array:
    """In place, so that a 0-d array stays one."""
    total /= size
    return total
