"""Expected results of collectives, computed in the driver from a Job.

Sums, extremes and products of the values that strategies_collectives chooses are exact in any order, so bits are
compared. For real values, a term that goes through m roundings gives |got - exact| <= gamma_m sum|terms|:

    sum    W - 1 additions, and one rounding of the exact sum to float64 here
    mean   the same, and two for the division: by W, or a product with the rounded 1 / W, before or after the sum
    prod   W - 1 multiplications, and W - 1 here
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..job import AllGather, AllReduce, Broadcast, Job, ReduceScatter, TensorSpec, Wait
from ..numerics import gamma, sum_bound
from ..seeded_values import Array

Reducing = AllReduce | ReduceScatter
Collective = AllReduce | ReduceScatter | Broadcast | AllGather


@dataclass(frozen=True, slots=True)
class Want:
    """The expected result of one rank: these bits; with a bound, values within it of these float64 values.

    moved: the result is a copy, so that even the sign of zero is kept.
    """

    value: Array
    bound: Array | None = None
    moved: bool = False


def finished(job: Job) -> Iterator[tuple[int, Collective, tuple[int, ...]]]:
    """Position of each result, the collective that it belongs to, and the members of its group."""
    for position, operation in enumerate(job.operations):
        made = job.operations[operation.operation] if isinstance(operation, Wait) else operation
        started_only = isinstance(operation, AllReduce) and not operation.wait
        if isinstance(made, Collective) and not started_only:
            yield position, made, members_of(made.group, job.world_size)


def members_of(group: tuple[int, ...] | None, world_size: int) -> tuple[int, ...]:
    return tuple(range(world_size)) if group is None else group


def wants(collective: Collective, members: tuple[int, ...]) -> dict[int, Want]:
    """The expected result of each member."""
    if isinstance(collective, Broadcast):
        return dict.fromkeys(members, Want(collective.tensor.on(collective.root), moved=True))
    if isinstance(collective, AllGather):
        return dict.fromkeys(members, Want(np.stack([collective.tensor.on(rank) for rank in members]), moved=True))
    whole = reduced(collective.tensor, collective.reduction, members)
    if isinstance(collective, AllReduce):
        return dict.fromkeys(members, whole)
    blocks = np.split(whole.value, len(members))
    bounds: Sequence[Array | None] = (
        [None] * len(members) if whole.bound is None else np.split(whole.bound, len(members))
    )
    return {rank: Want(*block) for rank, block in zip(members, zip(blocks, bounds, strict=True), strict=True)}


def reduced(tensor: TensorSpec, reduction: str, members: tuple[int, ...]) -> Want:
    """The reduction of the members' tensors."""
    stack = np.stack([tensor.on(rank) for rank in members])
    size, dtype = len(members), stack.dtype
    with np.errstate(all="ignore"):
        if reduction in ("min", "max"):
            return Want(np.asarray(stack.min(axis=0) if reduction == "min" else stack.max(axis=0)))
        if dtype.kind != "f":
            return Want(
                np.asarray(stack.prod(axis=0, dtype=dtype) if reduction == "prod" else stack.sum(axis=0, dtype=dtype))
            )
        wide = stack.astype(np.float64)
        if reduction == "prod":
            value = np.asarray(wide.prod(axis=0))
            exact = tensor.values in ("powers", "nonfinite")  # small integers, NaN and infinities
            return Want(value.astype(dtype)) if exact else Want(value, np.abs(value) * gamma(2 * size - 2, dtype))
        divisor = size if reduction == "mean" else 1
        if tensor.values != "real" and tensor.step % divisor == 0:
            return Want(np.asarray(wide.sum(axis=0) / divisor).astype(dtype))
        sums = np.array([_total(terms) for terms in wide.reshape(size, -1).T]).reshape(tensor.shape)
        extra = 1 if reduction == "sum" else 3
        return Want(sums / divisor, sum_bound(np.abs(wide).sum(axis=0) / divisor, size, dtype, extra=extra))


def _total(terms: Array) -> float:
    """The exact sum, rounded once. Infinities are added by NumPy, because fsum rejects two that cancel."""
    return math.fsum(terms) if np.isfinite(terms).all() else float(terms.sum())
