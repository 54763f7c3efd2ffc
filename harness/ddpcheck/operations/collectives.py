"""Collectives of a Job. contract.adapter.Collectives documents each call. `group=None` means all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..storage.dataclass_json import plain
from .data import TensorSpec


@plain
@dataclass(frozen=True, slots=True)
class AllReduce:
    """Yields result, of the tensor's shape and dtype.

    Every collective with a result also yields argument_changed, aliases_argument (the result shares memory with the
    rank's own array), read_only (the result is not writable) and overwritten_later (the result has changed by the end
    of the Job).

    in_place: all_reduce_in_place (optional_methods.InPlace) on an array from empty(). With layout "offset" the array is the
    middle of a larger one, and beside_changed says whether the elements next to it have changed. With layout "mixed"
    even ranks use an array of NumPy's own.
    """

    kind: ClassVar[str] = "all_reduce"
    tensor: TensorSpec
    reduction: Literal["sum", "mean", "min", "max", "prod"] = "sum"
    group: tuple[int, ...] | None = None
    wait: bool = True  # False: asynchronous, completed by a Wait
    in_place: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the asynchronous operation at position `operation`. Yields its result."""

    kind: ClassVar[str] = "wait"
    operation: int


@plain
@dataclass(frozen=True, slots=True)
class Broadcast:
    """Yields result: the root's array. The other ranks pass an array of poison."""

    kind: ClassVar[str] = "broadcast"
    tensor: TensorSpec
    root: int = 0
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class AllGather:
    """Yields result of shape (group size, *shape): the arrays of all ranks, in rank order."""

    kind: ClassVar[str] = "all_gather"
    tensor: TensorSpec
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Yields result: this rank's block of the reduction. The tensor's first dimension is a multiple of the group
    size.
    """

    kind: ClassVar[str] = "reduce_scatter"
    tensor: TensorSpec
    reduction: Literal["sum", "mean", "min", "max", "prod"] = "sum"
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class Barrier:
    kind: ClassVar[str] = "barrier"
    group: tuple[int, ...] | None = None


@plain
@dataclass(frozen=True, slots=True)
class SendRecv:
    """Each (source, destination) pair sends one array, in this order on all ranks.

    Yields received: {"source>destination": array}, and read_only: whether any received array is not writable.
    """

    kind: ClassVar[str] = "send_recv"
    tensor: TensorSpec
    pairs: tuple[tuple[int, int], ...]
