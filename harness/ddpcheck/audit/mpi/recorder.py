"""COMM_WORLD of a real run: each call is noted with the script's line, and the argument of a reduction is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from ..recorded_process import Run
from .arrays import digest, leaves
from .buffer_arguments import array_of
from .marked_batches import Marks
from .mpi4py_methods import BARRIERS, BUFFERED, NOT_BLOCKING, OBJECTS, POINT_TO_POINT, REDUCTIONS, SPLITS, blocking

_SMALL = 16
_UNEVEN = ("Gather", "Gatherv", "Allgatherv", "Scatter", "Scatterv", "Alltoallv")
"""Collectives whose buffers may differ between ranks."""

_Intracomm: Any = MPI.Intracomm


def world(run: Run, marks: Marks) -> Any:
    """A communicator that replaces COMM_WORLD."""

    class RecordedComm(_Intracomm):  # type: ignore[misc]
        """A recording communicator. It has no state, because mpi4py derives others from it without calling __init__."""

    def add(name: str, method: Any) -> None:
        method.__name__ = name
        setattr(RecordedComm, name, method)

    def noting(name: str) -> Any:
        original = getattr(MPI.Intracomm, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            described = described_call(self, name, args, kwargs)
            run.note("collective", step=run.step, number=marks.inside, line=run.line(), **described)
            if blocking(name) in REDUCTIONS:
                marks.reduced(_given(args, kwargs), run.line())
            result = original(self, *args, **kwargs)
            run.note("left", op=name, values=_small(args, kwargs), sizes=_sizes(result) if name == "bcast" else [])
            return result

        return call

    def splitting(name: str) -> Any:
        original = getattr(MPI.Intracomm, name)

        def split(self: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(self, *args, **kwargs)
            run.note("split", op=name, size=0 if made == MPI.COMM_NULL else made.Get_size(), line=run.line())
            return made if made == MPI.COMM_NULL else RecordedComm(made)

        return split

    for name in (*BUFFERED, *OBJECTS, *NOT_BLOCKING, *BARRIERS, *POINT_TO_POINT):
        if hasattr(MPI.Intracomm, name):
            add(name, noting(name))
    for name in SPLITS:
        if hasattr(MPI.Intracomm, name):
            add(name, splitting(name))
    return RecordedComm(MPI.COMM_WORLD)


def _sizes(value: Any) -> list[int]:
    """Sizes of the float arrays in a broadcast object."""
    return [each.size for each in leaves(value) if each.dtype.kind == "f"]


def described_call(comm: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Operation, group, size, dtype and reduction, as far as the arguments show them."""
    op = next((each for each in (*args, *kwargs.values()) if isinstance(each, MPI.Op)), None)
    found: dict[str, Any] = {
        "op": name,
        "group": comm.Get_size(),
        "point": name in POINT_TO_POINT,
        "grad": True,
        "loses_gradient": False,
        "values": _small(args, kwargs),
    }
    array = _given(args, kwargs) if name not in OBJECTS else None
    if array is not None and blocking(name) not in _UNEVEN:
        found |= {"shape": [array.size], "dtype": str(array.dtype)}
        if name in ("Bcast", "Ibcast") and array.dtype.kind == "f":
            found["digest"] = digest(array)
    if blocking(name) in REDUCTIONS or name in ("allreduce", "reduce"):
        found["reduce"] = op_name(op)
    return found


def op_name(op: Any) -> str:
    """SUM for MPI.SUM, which is also the default; custom for an operation of the script's own."""
    if op is None or op == MPI.SUM:
        return "SUM"
    return next(
        (name for name in ("PROD", "MIN", "MAX", "LAND", "LOR", "BAND", "BOR") if op == getattr(MPI, name)), "custom"
    )


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The array that a call sends: its first buffer, or the second if the first is IN_PLACE."""
    several = [*args, *(kwargs[name] for name in ("sendbuf", "buf", "recvbuf") if name in kwargs)]
    return next((array for each in several[:2] if (array := array_of(each)) is not None), None)


def _small(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[float] | None:
    """The numbers of a small buffer, or a single number, as metrics are."""
    first = next(iter((*args, *kwargs.values())), None)
    if isinstance(first, (int, float, np.number)) and not isinstance(first, bool):
        return [float(first)]
    array = _given(args, kwargs)
    if array is None or not 0 < array.size <= _SMALL or array.dtype.kind not in "fiu":
        return None
    return [float(each) for each in array]
