"""Hypotheses about a wrong result of a collective: alternatives for the diagnosis, likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ...causes import Cause, values
from ...causes import collectives as causes
from ...job import AllGather, AllReduce, Broadcast, Job, ReduceScatter, TensorSpec
from ...oracle.collectives import Collective, Reducing, finished, reduced, wants
from ...seeded_values import Array, overwritten, poison_like
from ...verdict import Finding
from .datatypes import FOLDS, of_another_datatype

_FEW = 512
"""Elements of a reduction of which every block is tried."""
_SOME = 4
"""Of so many ranks every two are tried."""


def suspects(job: Job, collective: Collective, rank: int, members: tuple[int, ...]) -> Iterator[tuple[Cause, Array]]:
    """Causes, each with the result that it would give this rank."""
    tensor = collective.tensor
    if isinstance(collective, Broadcast):
        poison = poison_like(tensor.on(rank))
        if rank == collective.root:
            by_rank = members.index(collective.root) != collective.root
            yield (causes.ROOT_IS_A_RANK if by_rank else causes.NON_ROOT_TAKES_PART)(), poison
        yield causes.BROADCAST_NOT_RECEIVED(), poison
    if isinstance(collective, AllGather):
        yield from _stacked_otherwise(tensor, members)
    if isinstance(collective, AllReduce):
        yield from _other_reductions(collective, members, job.world_size)
    if isinstance(collective, ReduceScatter):
        if collective.reduction not in ("sum", "mean"):
            total = wants(replace(collective, reduction="sum"), members)[rank].value
            yield causes.REDUCTION_IGNORED(), total
        yield from _other_blocks(collective, members, members.index(rank))
        if tensor.dtype == "float64" and collective.reduction in ("sum", "mean"):
            block = _narrowed_block(collective, members, rank)
            if not np.isfinite(block).all():  # else lost_precision says more
                yield causes.SUM_AS_FLOAT32(), block
        for other, want in wants(collective, members).items():
            if other != rank:
                yield causes.OTHER_RANKS_BLOCK(rank=other), want.value
    if tensor.values == "nonfinite" and isinstance(collective, Reducing) and collective.reduction in ("sum", "mean"):
        whole = wants(collective, members)[rank].value
        yield causes.INFINITY_BECOMES_NAN(), np.where(np.isinf(whole), np.nan, whole)
    elif tensor.dtype.startswith("float"):
        yield causes.READ_AFTER_RETURN(call="the call, or its wait(),"), poison_like(tensor.on(rank))
    for position in range(len(job.operations)):
        yield causes.RESULTS_SHARE_MEMORY(operation=position), overwritten(tensor.shape, tensor.dtype, position)
    for position, made, ranks in finished(job):
        if made is not collective and members != ranks and isinstance(collective, AllReduce):
            yield from _of_another_group(collective, made, position, members, ranks)
        if made is collective or rank not in ranks:
            continue
        if made.tensor.dtype == tensor.dtype:
            yield causes.RESULTS_MIXED_UP(operation=position), wants(made, ranks)[rank].value
            if isinstance(collective, AllReduce) and isinstance(made, AllReduce):
                yield from _paired_otherwise(collective, made, position, members, ranks)
        elif isinstance(collective, AllReduce) and isinstance(made, AllReduce):
            yield from _as_other_bits(tensor, made, position, ranks)
    if isinstance(collective, Reducing) and collective.reduction != "sum":
        yield from _other_folds(collective, members, rank)


def _narrowed_block(collective: ReduceScatter, members: tuple[int, ...], rank: int) -> Array:
    """A rank's block of narrowed parts: large ones become infinite, and their sums NaN."""
    with np.errstate(all="ignore"):
        total = np.stack([collective.tensor.on(each).astype(np.float32) for each in members]).sum(axis=0)
        whole = (total / (len(members) if collective.reduction == "mean" else 1)).astype(np.float64)
    return np.asarray(np.split(whole, len(members))[members.index(rank)])


def _stacked_otherwise(tensor: TensorSpec, members: tuple[int, ...]) -> Iterator[tuple[Cause, Array]]:
    """The arrays of few ranks in each other order, those of many in reverse; one rank's in all places."""
    orders = permutations(members) if len(members) <= _SOME else [members, members[::-1]]
    for order in list(orders)[1:]:
        yield causes.ROWS_IN_WRONG_ORDER(order=tuple(order)), np.stack([tensor.on(rank) for rank in order])
    rows = [tensor.on(rank) for rank in members]
    for row, rank in permutations(range(len(members)), 2) if 2 < len(members) <= _SOME else ():
        wrong = np.stack([*rows[:row], rows[rank], *rows[row + 1 :]])
        yield causes.ROW_OF_OTHER_RANK(row=row, rank=members[rank], due=members[row]), wrong
    for rank in members[: _SOME * (len(members) > 1)]:
        yield causes.ONE_ROW_FOR_ALL(rank=rank), np.stack([tensor.on(rank)] * len(members))


def _paired_otherwise(
    collective: AllReduce, made: AllReduce, position: int, members: tuple[int, ...], ranks: tuple[int, ...]
) -> Iterator[tuple[Cause, Array]]:
    """One rank's part of a sum from another one."""
    alike = (collective.reduction, made.reduction) == ("sum", "sum") and collective.tensor.shape == made.tensor.shape
    if alike and members == ranks and len(members) > 1:
        total = np.asarray(reduced(collective.tensor, "sum", members).value)
        for rank in members:
            yield (
                causes.PART_OF_OTHER_CALL(rank=rank, operation=position),
                total - collective.tensor.on(rank) + made.tensor.on(rank),
            )


def _of_another_group(
    collective: AllReduce, made: Collective, position: int, members: tuple[int, ...], ranks: tuple[int, ...]
) -> Iterator[tuple[Cause, Array]]:
    """The argument of a rank of both groups there, taken for its part of a sum here."""
    there = made.tensor
    fold = FOLDS.get(collective.reduction)
    if fold is None or (there.shape, there.dtype) != (collective.tensor.shape, collective.tensor.dtype):
        return
    for rank in {*members} & {*ranks}:
        parts = [(there if each == rank else collective.tensor).on(each) for each in members]
        cause = causes.PART_OF_OTHER_GROUP(rank=rank, operation=position, group=tuple(ranks))
        whole = fold.reduce(parts, axis=0, dtype=there.dtype)
        yield cause, np.asarray(whole / len(members) if collective.reduction == "mean" else whole)


def _as_other_bits(
    tensor: TensorSpec, made: AllReduce, position: int, ranks: tuple[int, ...]
) -> Iterator[tuple[Cause, Array]]:
    """Another result of as many bytes, taken for one of this dtype."""
    want = wants(made, ranks)[ranks[0]]
    if want.bound is None and want.value.nbytes == math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize:
        yield (
            causes.RESULTS_MIXED_UP_AS_OTHER_DTYPE(operation=position, dtype=tensor.dtype),
            np.frombuffer(want.value.tobytes(), tensor.dtype).reshape(tensor.shape),
        )


def _other_folds(collective: Reducing, members: tuple[int, ...], rank: int) -> Iterator[tuple[Cause, Array]]:
    """Reductions that are right for most ranks: another divisor, or two ranks whose values were added under any reduction."""
    tensor, size, place = collective.tensor, len(members), members.index(rank)

    def share(whole: Array) -> Array:
        return np.asarray(np.split(whole, size)[place] if isinstance(collective, ReduceScatter) else whole)

    if collective.reduction == "mean":
        total = np.asarray(reduced(tensor, "sum", members).value)
        for divisor in {*range(2, 2 * size + 1)} - {size}:
            yield causes.WRONG_DIVISOR_OF_SUM(divisor=divisor, world_size=size), share(total / divisor)
        return
    for pair in combinations(members, 2) if size > 2 else ():
        rest = [tensor.on(each) for each in members if each not in pair]
        stack = np.stack([tensor.on(pair[0]) + tensor.on(pair[1]), *rest])
        by = FOLDS[collective.reduction]
        yield causes.ADDED_NOT_REDUCED(ranks=pair), share(by.reduce(stack, axis=0))


def _other_blocks(scattered: ReduceScatter, members: tuple[int, ...], place: int) -> Iterator[tuple[Cause, Array]]:
    """Blocks of the whole reduction."""
    tensor = scattered.tensor
    wholes = list(_other_integers(scattered, members)) if not tensor.dtype.startswith("float") else []
    if tensor.layout == "F":
        whole = np.asarray(reduced(tensor, scattered.reduction, members).value)
        wholes.append((causes.SENT_BY_COLUMNS(), whole.T.reshape(whole.shape)))
    for cause, whole in wholes:
        yield cause, np.split(whole, len(members))[place]
    flat = np.asarray(reduced(tensor, scattered.reduction, members).value).reshape(-1)
    size = flat.size // len(members)
    for begin in range(flat.size - size + 1) if size > 1 and flat.size <= _FEW else ():
        if begin % size:
            yield (
                causes.BLOCK_CUT_WRONG(first=begin, expected=place * size),
                flat[begin : begin + size].reshape(-1, *tensor.shape[1:]),
            )


def _other_reductions(
    collective: AllReduce, members: tuple[int, ...], world_size: int
) -> Iterator[tuple[Cause, Array]]:
    tensor, everybody = collective.tensor, tuple(range(world_size))
    total = np.asarray(reduced(tensor, "sum", members).value)
    divisor = len(members) if collective.reduction == "mean" else 1
    if collective.reduction not in ("sum", "mean"):
        yield causes.REDUCTION_IGNORED(), total
    if collective.reduction == "sum" and tensor.dtype.startswith("float"):
        yield causes.SUM_BECOMES_NAN(), np.where(np.isinf(total), np.nan, total)
    if collective.reduction in ("min", "max"):
        opposite = "max" if collective.reduction == "min" else "min"
        yield causes.OPPOSITE_EXTREME(), reduced(tensor, opposite, members).value
        yield from _started_from(reduced(tensor, collective.reduction, members).value, collective.reduction)
    if collective.reduction == "prod":
        stack = np.stack([tensor.on(rank) for rank in members])
        rest = np.where(stack == 0, np.ones((), stack.dtype), stack).prod(axis=0, dtype=stack.dtype)
        yield causes.ZERO_LEFT_OUT_OF_PRODUCT(), rest
    if tensor.dtype == "float64" and collective.reduction in ("sum", "mean"):
        narrow = np.stack([tensor.on(rank).astype(np.float32) for rank in members]).sum(axis=0)
        if not np.isfinite(narrow).all():  # else lost_precision says more
            yield causes.SUM_AS_FLOAT32(), narrow / divisor
    if collective.reduction != "mean" and not tensor.dtype.startswith("float"):
        yield from _other_integers(collective, members)
    if collective.reduction == "mean":
        yield causes.DIVIDED_BY_SIZE_OF_ARRAY(), total / max(1, total.size)
        yield causes.DIVIDED_BY_WORLD(), total / world_size
    if members != everybody:
        yield causes.GROUP_IGNORED(), reduced(tensor, collective.reduction, everybody).value
    if collective.reduction in ("sum", "mean"):
        for twice in members:
            yield causes.RANK_COUNTED_TWICE(rank=twice), (total + tensor.on(twice)) / divisor
    if collective.reduction == "mean" and len(members) > 2:
        running = tensor.on(members[0])
        for rank in members[1:]:
            running = (running + tensor.on(rank)) / 2
        yield causes.RUNNING_MEAN(), running
        half = len(members) // 2
        first, second = (reduced(tensor, "mean", part).value for part in (members[:half], members[half:]))
        yield causes.MEAN_OF_UNEVEN_MEANS(), (first + second) / 2
    yield from of_another_datatype([tensor.on(rank) for rank in members], collective.reduction)
    for missing in members:
        if rest := tuple(rank for rank in members if rank != missing):
            part = reduced(tensor, collective.reduction, rest).value
            yield causes.RANK_LEFT_OUT(rank=missing), part
    if collective.reduction in ("sum", "mean"):
        for lost, twice in permutations(members[:_SOME], 2):
            part = (total - tensor.on(lost) + tensor.on(twice)) / divisor
            yield causes.RECEIVED_OVERWRITES(twice=twice, lost=lost), part


def _started_from(extreme: Array, reduction: str) -> Iterator[tuple[Cause, Array]]:
    """An extreme of the ranks' values and of one more, which the accumulator held at first."""
    compare, sign = (np.minimum, "") if reduction == "min" else (np.maximum, "minus ")
    starts: dict[str, Any] = {"0": 0}
    if extreme.dtype.kind == "f":
        limits = np.finfo(extreme.dtype)
        # the two are alike where other numbers are large
        starts = {"0, or the smallest positive number": limits.tiny}
        starts[f"{sign}the largest finite number"] = limits.max if reduction == "min" else limits.min
    elif extreme.dtype == np.int64:
        narrow = np.iinfo(np.int32)
        least = "the largest int32" if reduction == "min" else "the lowest int32"
        starts[least] = narrow.max if reduction == "min" else narrow.min
    for name, start in starts.items():
        yield causes.STARTS_FROM(start=name), np.asarray(compare(extreme, np.asarray(start, extreme.dtype)))


def _other_integers(collective: AllReduce | ReduceScatter, members: tuple[int, ...]) -> Iterator[tuple[Cause, Array]]:
    stack = np.stack([collective.tensor.on(rank) for rank in members])
    dtype = stack.dtype
    if collective.reduction in ("sum", "prod"):
        limits, whole = np.iinfo(dtype), sum if collective.reduction == "sum" else math.prod
        columns = stack.reshape(len(members), -1).T.tolist()
        cut = np.array([min(max(whole(column), limits.min), limits.max) for column in columns], dtype)
        yield causes.INTEGERS_SATURATE(), cut.reshape(stack.shape[1:])
        wide = stack.astype(np.float64)
        yield (
            causes.INTEGERS_COMPUTED_AS(dtype="float64", bits=53),
            wide.sum(axis=0) if whole is sum else wide.prod(axis=0),
        )
        narrow = stack.astype(np.float32)
        yield (
            causes.INTEGERS_COMPUTED_AS(dtype="float32", bits=24),
            narrow.sum(axis=0) if whole is sum else narrow.prod(axis=0),
        )
        return
    extreme = np.minimum if collective.reduction == "min" else np.maximum
    opposite = np.maximum if collective.reduction == "min" else np.minimum
    if dtype.kind == "u":
        signed = stack.view(dtype.name[1:])
        yield causes.UNSIGNED_AS_SIGNED(), extreme.reduce(signed, axis=0).view(dtype)
    yield causes.EXTREME_BY_NEGATION(dtype=dtype.name), -opposite.reduce(-stack, axis=0)


def of_a_product(finding: Finding, got: Array, parts: Sequence[Array]) -> Finding:
    """The finding on a product of these parts, and whether it was computed by logarithms: those of negative numbers are NaN, and
    exp of a sum of others is a little off.
    """
    if got.dtype.kind != "f":
        return finding
    sure, negative = finding.diagnosis.causes, (np.stack(parts) < 0).any(axis=0)
    if negative.any() and np.array_equal(np.isnan(got), negative):
        return finding.blaming(causes.PRODUCT_BY_LOGARITHMS())
    rounded = values.LAST_BITS_WRONG.explains(sure)
    return finding.blaming(sure, causes.PRODUCT_BY_LOGARITHMS().but("possible") if rounded else None)
