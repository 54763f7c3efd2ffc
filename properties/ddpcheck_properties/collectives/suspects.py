"""What a collective would have given if something specific had gone wrong: alternatives for the diagnosis, likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np

from ddpcheck.job import AllGather, AllReduce, Broadcast, Job, ReduceScatter, TensorSpec
from ddpcheck.values import Array, overwritten, poison_like
from ddpcheck.verdict import Finding

from .datatypes import FOLDS, of_another_datatype
from .results import Collective, Reducing, finished, reduced, wants

_FEW = 512
"""Elements of a reduction of which every block is tried."""
_SOME = 4
"""Of so many ranks every two are tried."""


def suspects(job: Job, collective: Collective, rank: int, members: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Sentences, and what this rank would have got of each."""
    tensor = collective.tensor
    if isinstance(collective, Broadcast):
        poison = poison_like(tensor.on(rank))
        numbered = ", whose number is that of a rank, and no place in the group" * (
            members.index(collective.root) != collective.root
        )
        if rank == collective.root:
            yield (
                "what ranks other than the root passed takes part, where a NaN stays one, also if it is multiplied by 0, or "
                f"one of them was taken for the root{numbered}",
                poison,
            )
        yield "it is what the ranks other than the root passed: the wrong root, or nothing was received", poison
    if isinstance(collective, AllGather):
        yield from _stacked_otherwise(tensor, members)
    if isinstance(collective, AllReduce):
        yield from _other_reductions(collective, members, job.world_size)
    if isinstance(collective, ReduceScatter):
        if collective.reduction not in ("sum", "mean"):
            total = wants(replace(collective, reduction="sum"), members)[rank].value
            yield "it is the block of the sum: the reduction was not passed on", total
        yield from _other_blocks(collective, members, members.index(rank))
        for other, want in wants(collective, members).items():
            if other != rank:
                yield f"it is the block of rank {other}", want.value
    if tensor.values == "nonfinite" and isinstance(collective, Reducing) and collective.reduction in ("sum", "mean"):
        whole = wants(collective, members)[rank].value
        yield (
            "NaN, where an infinity should stay one: it was taken from itself, as a running mean or a compensated sum does, or "
            "multiplied by 0",
            np.where(np.isinf(whole), np.nan, whole),
        )
    elif tensor.dtype.startswith("float"):
        text = "an argument was read after the call, or its wait(), had given it back: its owner had overwritten it"
        yield text, poison_like(tensor.on(rank))
    for position in range(len(job.operations)):
        text = f"it is the array that operation {position} gave, overwritten by its owner since: two results share their memory"
        yield text, overwritten(tensor.shape, tensor.dtype, position)
    for position, made, ranks in finished(job):
        if made is not collective and members != ranks and isinstance(collective, AllReduce):
            yield from _of_another_group(collective, made, position, members, ranks)
        if made is collective or rank not in ranks:
            continue
        if made.tensor.dtype == tensor.dtype:
            yield f"it is the result of operation {position}: results are mixed up", wants(made, ranks)[rank].value
            if isinstance(collective, AllReduce) and isinstance(made, AllReduce):
                yield from _paired_otherwise(collective, made, position, members, ranks)
        elif isinstance(collective, AllReduce) and isinstance(made, AllReduce):
            yield from _as_other_bits(tensor, made, position, ranks)
    if isinstance(collective, Reducing) and collective.reduction != "sum":
        yield from _other_folds(collective, members, rank)


def _stacked_otherwise(tensor: TensorSpec, members: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """The arrays of few ranks in each other order, those of many in reverse; one rank's in all places."""
    orders = permutations(members) if len(members) <= _SOME else [members, members[::-1]]
    for order in list(orders)[1:]:
        text = f"the ranks' arrays stand in the order of rank {', '.join(map(str, order))}"
        yield text, np.stack([tensor.on(rank) for rank in order])
    for rank in members[: _SOME * (len(members) > 1)]:
        text = f"every row is the array of rank {rank}: one array stands for all that are received"
        yield text, np.stack([tensor.on(rank)] * len(members))


def _paired_otherwise(
    collective: AllReduce, made: AllReduce, position: int, members: tuple[int, ...], ranks: tuple[int, ...]
) -> Iterator[tuple[str, Array]]:
    """One rank's part of a sum from another one."""
    alike = (collective.reduction, made.reduction) == ("sum", "sum") and collective.tensor.shape == made.tensor.shape
    if alike and members == ranks and len(members) > 1:
        total = np.asarray(reduced(collective.tensor, "sum", members).value)
        for rank in members:
            text = (
                f"rank {rank}'s part is that of operation {position}: the ranks' calls, or their buffers, are mixed up"
            )
            yield text, total - collective.tensor.on(rank) + made.tensor.on(rank)


def _of_another_group(
    collective: AllReduce, made: Collective, position: int, members: tuple[int, ...], ranks: tuple[int, ...]
) -> Iterator[tuple[str, Array]]:
    """What one rank, which is in both, has put in there, taken for its part of a sum here."""
    there = made.tensor
    fold = FOLDS.get(collective.reduction)
    if fold is None or (there.shape, there.dtype) != (collective.tensor.shape, collective.tensor.dtype):
        return
    for rank in {*members} & {*ranks}:
        parts = [(there if each == rank else collective.tensor).on(each) for each in members]
        text = (
            f"rank {rank}'s part is what it put into operation {position}, in group {list(ranks)}: groups are mixed up"
        )
        whole = fold.reduce(parts, axis=0, dtype=there.dtype)
        yield text, np.asarray(whole / len(members) if collective.reduction == "mean" else whole)


def _as_other_bits(
    tensor: TensorSpec, made: AllReduce, position: int, ranks: tuple[int, ...]
) -> Iterator[tuple[str, Array]]:
    """Another result of as many bytes, taken for one of this dtype."""
    want = wants(made, ranks)[ranks[0]]
    if want.bound is None and want.value.nbytes == math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize:
        text = f"it is the result of operation {position}, whose bits are read as {tensor.dtype}: results are mixed up"
        yield text, np.frombuffer(want.value.tobytes(), tensor.dtype).reshape(tensor.shape)


def _other_folds(collective: Reducing, members: tuple[int, ...], rank: int) -> Iterator[tuple[str, Array]]:
    """Reductions that are right for most ranks: another divisor, or two ranks whose values were added, whatever was asked for."""
    tensor, size, place = collective.tensor, len(members), members.index(rank)

    def share(whole: Array) -> Array:
        return np.asarray(np.split(whole, size)[place] if isinstance(collective, ReduceScatter) else whole)

    if collective.reduction == "mean":
        total = np.asarray(reduced(tensor, "sum", members).value)
        for divisor in {*range(2, 2 * size + 1)} - {size}:
            yield f"the sum was divided by {divisor}, not by the {size} ranks", share(total / divisor)
        return
    for pair in combinations(members, 2) if size > 2 else ():
        rest = [tensor.on(each) for each in members if each not in pair]
        stack = np.stack([tensor.on(pair[0]) + tensor.on(pair[1]), *rest])
        by = FOLDS[collective.reduction]
        text = f"the values of rank {pair[0]} and {pair[1]} were added: the reduction was not passed on everywhere"
        yield text, share(by.reduce(stack, axis=0))


def _other_blocks(scattered: ReduceScatter, members: tuple[int, ...], place: int) -> Iterator[tuple[str, Array]]:
    """Blocks of what the whole reduction would be."""
    tensor = scattered.tensor
    wholes = list(_other_integers(scattered, members)) if not tensor.dtype.startswith("float") else []
    if tensor.layout == "F":
        whole = np.asarray(reduced(tensor, scattered.reduction, members).value)
        wholes.append(("the array is read as it lies in memory, column by column", whole.T.reshape(whole.shape)))
    for text, whole in wholes:
        yield text, np.split(whole, len(members))[place]
    flat = np.asarray(reduced(tensor, scattered.reduction, members).value).reshape(-1)
    size = flat.size // len(members)
    for begin in range(flat.size - size + 1) if size > 1 and flat.size <= _FEW else ():
        if begin % size:
            text = f"it begins at element {begin} of the reduction, not at {place * size}: the block is cut in a wrong place"
            yield text, flat[begin : begin + size].reshape(-1, *tensor.shape[1:])


def _other_reductions(collective: AllReduce, members: tuple[int, ...], world_size: int) -> Iterator[tuple[str, Array]]:
    tensor, everybody = collective.tensor, tuple(range(world_size))
    total = np.asarray(reduced(tensor, "sum", members).value)
    divisor = len(members) if collective.reduction == "mean" else 1
    if collective.reduction not in ("sum", "mean"):
        yield "it is the sum: the reduction was not passed on", total
    if collective.reduction == "sum" and tensor.dtype.startswith("float"):
        yield "infinities, or sums that overflow, become NaN", np.where(np.isinf(total), np.nan, total)
    if collective.reduction in ("min", "max"):
        opposite = "max" if collective.reduction == "min" else "min"
        yield (
            "it is the opposite extreme: compared the wrong way round, as bits do",
            reduced(tensor, opposite, members).value,
        )
        yield from _started_from(reduced(tensor, collective.reduction, members).value, collective.reduction)
    if collective.reduction == "prod":
        stack = np.stack([tensor.on(rank) for rank in members])
        rest = np.where(stack == 0, np.ones((), stack.dtype), stack).prod(axis=0, dtype=stack.dtype)
        yield "a rank that has a zero is left out there: it is the product of the others", rest
    if tensor.dtype == "float64" and collective.reduction in ("sum", "mean"):
        narrow = np.stack([tensor.on(rank).astype(np.float32) for rank in members]).sum(axis=0)
        if not np.isfinite(narrow).all():  # else lost_precision says more
            yield "it was added up as float32: what that has no room for is zero or infinite", narrow / divisor
    if collective.reduction != "mean" and not tensor.dtype.startswith("float"):
        yield from _other_integers(collective, members)
    if collective.reduction == "mean":
        yield "the sum was divided by the number of elements, not by that of ranks", total / max(1, total.size)
        yield "the sum was divided by the world size, not by the size of the group", total / world_size
    if members != everybody:
        yield (
            "it is the result over all ranks, not over the group",
            reduced(tensor, collective.reduction, everybody).value,
        )
    if collective.reduction in ("sum", "mean"):
        for twice in members:
            yield f"the values of rank {twice} are counted twice", (total + tensor.on(twice)) / divisor
    if collective.reduction == "mean" and len(members) > 2:
        running = tensor.on(members[0])
        for rank in members[1:]:
            running = (running + tensor.on(rank)) / 2
        yield "each rank's values were averaged with the mean of those before: the last rank counts half", running
        half = len(members) // 2
        first, second = (reduced(tensor, "mean", part).value for part in (members[:half], members[half:]))
        yield "it is the mean of two means, of ranks that are not equally many", (first + second) / 2
    yield from of_another_datatype([tensor.on(rank) for rank in members], collective.reduction)
    for missing in members:
        if rest := tuple(rank for rank in members if rank != missing):
            part = reduced(tensor, collective.reduction, rest).value
            yield f"the values of rank {missing} are missing: read before they came, or lost", part
    if collective.reduction in ("sum", "mean"):
        for lost, twice in permutations(members[:_SOME], 2):
            why = "what was received overwrote what was still to be added"
            part = (total - tensor.on(lost) + tensor.on(twice)) / divisor
            yield f"the values of rank {twice} are there twice, and those of rank {lost} are not: {why}", part


def _started_from(extreme: Array, reduction: str) -> Iterator[tuple[str, Array]]:
    """An extreme of the ranks' values and of one more, which the accumulator held at first."""
    compare, sign = (np.minimum, "") if reduction == "min" else (np.maximum, "minus ")
    starts: dict[str, Any] = {"0": 0}
    if extreme.dtype.kind == "f":
        limits = np.finfo(extreme.dtype)
        # the two are alike where other numbers are large
        starts = {"0, or the smallest positive number,": limits.tiny}
        starts[f"{sign}the largest finite number"] = limits.max if reduction == "min" else limits.min
    elif extreme.dtype == np.int64:
        narrow = np.iinfo(np.int32)
        least = "the largest int32" if reduction == "min" else "the lowest int32"
        starts[least] = narrow.max if reduction == "min" else narrow.min
    for name, start in starts.items():
        sentence = f"it is compared with {name} as well, from which the accumulator starts"
        yield sentence, np.asarray(compare(extreme, np.asarray(start, extreme.dtype)))


def _other_integers(collective: AllReduce | ReduceScatter, members: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    stack = np.stack([collective.tensor.on(rank) for rank in members])
    dtype = stack.dtype
    if collective.reduction in ("sum", "prod"):
        limits, whole = np.iinfo(dtype), sum if collective.reduction == "sum" else math.prod
        columns = stack.reshape(len(members), -1).T.tolist()
        cut = np.array([min(max(whole(column), limits.min), limits.max) for column in columns], dtype)
        yield "what overflows is cut off at the ends of the dtype: integers wrap round", cut.reshape(stack.shape[1:])
        wide = stack.astype(np.float64)
        yield (
            "integers are computed with as float64: what is past 53 bits is lost",
            wide.sum(axis=0) if whole is sum else wide.prod(axis=0),
        )
        narrow = stack.astype(np.float32)
        yield (
            "integers are computed with as float32: what is past 24 bits is lost",
            narrow.sum(axis=0) if whole is sum else narrow.prod(axis=0),
        )
        return
    extreme = np.minimum if collective.reduction == "min" else np.maximum
    opposite = np.maximum if collective.reduction == "min" else np.minimum
    if dtype.kind == "u":
        signed = stack.view(dtype.name[1:])
        yield "unsigned integers are compared as signed ones", extreme.reduce(signed, axis=0).view(dtype)
    yield f"it is found by negation: the lowest {dtype} has no counterpart", -opposite.reduce(-stack, axis=0)


def of_a_product(finding: Finding, got: Array, parts: Sequence[Array]) -> Finding:
    """The finding on a product of these parts, and whether it was computed by logarithms: those of negative numbers are NaN, and
    exp of a sum of others is a little off.
    """
    if got.dtype.kind != "f":
        return finding
    sure, negative = finding.diagnosis.cause, (np.stack(parts) < 0).any(axis=0)
    if negative.any() and np.array_equal(np.isnan(got), negative):
        return finding.blaming(
            "it is NaN wherever a rank has a negative number: the product is exp of a sum of logarithms"
        )
    return finding.blaming(sure, "or the product is exp of a sum of logarithms" * ("in the last bits" in sure))
