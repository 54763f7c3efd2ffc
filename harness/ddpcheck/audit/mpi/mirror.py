"""A communicator of M identical ranks, of which this process is rank 0: every rank would send the values of this
one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from ..event_journal import JournalReader
from ..recorded_process import Run
from .buffer_arguments import array_of
from .marked_batches import Marks
from .mpi4py_methods import BARRIERS, BUFFERED, NOT_BLOCKING, POINT_TO_POINT, SPLITS, blocking
from .recorder import op_name

_Intracomm: Any = MPI.Intracomm
_FACTORS: dict[str, Callable[[Any, int], Any]] = {
    "SUM": lambda values, size: values * size,
    "PROD": lambda values, size: values**size,
}
"""The effect of a reduction over identical ranks on its values; other reductions change nothing."""


def world(run: Run, marks: Marks) -> Any:
    """A communicator that replaces COMM_WORLD."""
    sizes = _split_sizes(run)

    class MirrorComm(_Intracomm):  # type: ignore[misc]
        """SUM multiplies by M, PROD raises to the power of M, gathers give M copies; other calls change nothing."""

        count = 1

        def Get_rank(self) -> int:  # noqa: N802  # the names of mpi4py, here and below
            return 0

        def Get_size(self) -> int:  # noqa: N802
            return self.count

        rank = property(Get_rank)
        size = property(Get_size)

        def _reduced(self, array: Any, op: Any) -> Any:
            name = op_name(op)
            if name == "custom" and self.count > 1:
                run.note("misfit", what="a reduction of the script's own", step=run.step, line=run.line())
            return _FACTORS[name](array, self.count) if name in _FACTORS else array

        def _into(self, target: Any, values: Any) -> None:
            if target is not None:
                target[: values.size] = values

        def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> None:  # noqa: N802
            out = array_of(recvbuf)
            own = array_of(sendbuf)
            own = out if own is None else own
            marks.reduced(own, run.line())
            self._into(out, self._reduced(own, op))

        def Reduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0) -> None:  # noqa: N802
            if root == 0:
                self.Allreduce(sendbuf, recvbuf, op)
            else:
                marks.reduced(array_of(sendbuf), run.line())

        def Bcast(self, buf: Any, root: int = 0) -> None:  # noqa: N802
            return None

        def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
            out, own = array_of(recvbuf), array_of(sendbuf)
            if out is not None:
                own = out[: out.size // self.count] if own is None else own
                self._into(out, np.tile(own, self.count))

        Allgatherv = Allgather

        def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:  # noqa: N802
            if root == 0:
                self.Allgather(sendbuf, recvbuf)

        Gatherv = Gather

        def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:  # noqa: N802
            out, own = array_of(recvbuf), array_of(sendbuf)
            if out is not None and own is not None:
                self._into(out, own[: out.size])

        Scatterv = Scatter

        def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> None:  # noqa: N802
            out = array_of(recvbuf)
            own = array_of(sendbuf)
            own = out if own is None else own
            marks.reduced(own, run.line())
            if out is not None and own is not None:
                self._into(out, self._reduced(own[: min(out.size, own.size)], op))

        def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = MPI.SUM) -> None:  # noqa: N802
            self.Reduce_scatter_block(sendbuf, recvbuf, op)

        def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802
            out, own = array_of(recvbuf), array_of(sendbuf)
            if out is not None and own is not None:
                self._into(out, np.tile(own[: own.size // self.count], self.count))

        Alltoallv = Alltoall

        def Scan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> None:  # noqa: N802
            own = array_of(sendbuf)
            if own is not None:
                self._into(array_of(recvbuf), own)

        def Exscan(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> None:  # noqa: N802
            return None

        def allreduce(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
            return functools.reduce(op, [sendobj] * self.count)

        def reduce(self, sendobj: Any, op: Any = MPI.SUM, root: int = 0) -> Any:
            return self.allreduce(sendobj, op) if root == 0 else None

        def bcast(self, obj: Any, root: int = 0) -> Any:
            return obj

        def allgather(self, sendobj: Any) -> list[Any]:
            return [sendobj] * self.count

        def gather(self, sendobj: Any, root: int = 0) -> Any:
            return [sendobj] * self.count if root == 0 else None

        def scatter(self, sendobj: Any, root: int = 0) -> Any:
            return sendobj[0] if sendobj else None

        def alltoall(self, sendobj: Any) -> list[Any]:
            return [sendobj[0]] * self.count

        def scan(self, sendobj: Any, op: Any = MPI.SUM) -> Any:
            return sendobj

        def exscan(self, sendobj: Any, op: Any = MPI.SUM) -> None:
            return None

        def Free(self) -> None:  # noqa: N802
            return None

    def of_size(size: int) -> Any:
        made = MirrorComm(MPI.COMM_SELF)
        made.count = size
        return made

    def splitting(name: str) -> Any:
        def split(self: Any, *args: Any, **kwargs: Any) -> Any:
            size = next(sizes, self.count)
            if name in ("Dup", "Clone", "dup"):
                return of_size(self.count)
            if size == 0 or args[:1] == (MPI.UNDEFINED,):
                return MPI.COMM_NULL
            return of_size(min(size, self.count))

        return split

    def point(name: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            run.note("misfit", what="a point-to-point call", step=run.step, line=run.line(), why=name)
            run.leave("point-to-point")

        return call

    def later(name: str) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            getattr(self, blocking(name))(*args, **kwargs)
            return MPI.Request()  # a null request, which is complete

        return call

    for name in POINT_TO_POINT:
        setattr(MirrorComm, name, point(name))
    for name in SPLITS:
        setattr(MirrorComm, name, splitting(name))
    for name in NOT_BLOCKING:
        if blocking(name) in BUFFERED and hasattr(MirrorComm, blocking(name)):
            setattr(MirrorComm, name, later(name))
    for name in BARRIERS:
        setattr(MirrorComm, name, lambda self, later=name == "Ibarrier": MPI.Request() if later else None)
    return of_size(run.settings.mirror_size)


def _split_sizes(run: Run) -> Any:
    """The sizes of the groups that the real run's rank 0 got, in order."""
    events = JournalReader(Path(run.settings.folder) / "real" / "0").events()
    return iter([event["size"] for event in events if event["kind"] == "split"])
