"""Judges of collectives: Traces against what collective_results says, with evidence of what may have gone wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from ddpcheck import expect
from ddpcheck.diagnosis import Evidence
from ddpcheck.job import AllGather, AllReduce, Barrier, Broadcast, Job, ReduceScatter, SendRecv, TensorSpec, Wait
from ddpcheck.numerics import different_bits, same_bits
from ddpcheck.trace import Trace
from ddpcheck.values import Array, overwritten, poison_like, unreceived
from ddpcheck.verdict import Diagnosis, Finding

from .collective_results import Collective, Reducing, Want, finished, members_of, named, reduced, wants
from .incomplete import MIXED

_FEW = 512
"""Elements of a reduction of which every block is tried."""
_LONG = 0.5
"""Seconds that no barrier takes by chance."""


def results_hold(job: Job, trace: Trace) -> None:
    """The judge of most collective checks: every rank got what it must, and no barrier let a rank through early."""
    expect.completed(trace)
    for position, operation in enumerate(job.operations):
        if isinstance(operation, Barrier):
            _blocked(operation, position, trace)
        elif isinstance(operation, SendRecv):
            _received(job, operation, position, trace)
    for position, collective, members in finished(job):
        wanted = wants(collective, members)
        for rank in members:

            def evidence(position: int = position, collective: Collective = collective, rank: int = rank) -> Evidence:
                return _evidence(job, collective, rank)

            what = f"{named(collective, position)}: result"
            _compare(trace.ranks[rank].values(position)["result"], wanted[rank], what, rank, evidence)


def same_bits_everywhere(job: Job, trace: Trace) -> None:
    """A judge: every all-reduce gave all its members the same bits."""
    expect.completed(trace)
    for position, collective, members in finished(job):
        if isinstance(collective, AllReduce):
            results = [trace.ranks[rank].values(position)["result"] for rank in members]
            expect.same_on_all_ranks(results, f"{named(collective, position)}: result")


def arguments_are_left_alone(job: Job, trace: Trace) -> None:
    """A judge: no collective changed its argument, and every result is an array of its own."""
    expect.completed(trace)
    for position, operation in enumerate(job.operations):
        if isinstance(operation, SendRecv):
            for rank in sorted({dest for _, dest in operation.pairs}):
                _kept(trace.ranks[rank].values(position), f"{named(operation, position)} on rank {rank}")
    for position, collective, members in finished(job):
        for rank in members:
            seen = trace.ranks[rank].values(position)
            waited = isinstance(job.operations[position], Wait)
            what = f"{named(collective, position)}{', waited for,' * waited} on rank {rank}"
            expect.that(
                not seen["argument_changed"],
                f"{what}: its argument was changed, but should stay as it was",
                "the collective works in place on the caller's array; it needs a copy",
            )
            expect.that(
                not seen["aliases_argument"],
                f"{what}: the result shares memory with the argument, but should be a new array",
                "what the caller does to its own array would change the result, and the other way round",
            )
            _kept(seen, what)


def can_be_written_to(job: Job, trace: Trace) -> None:
    """A judge: whatever a collective gave is an array that its owner can overwrite."""
    expect.completed(trace)
    for position, operation in enumerate(job.operations):
        made = job.operations[operation.operation] if isinstance(operation, Wait) else operation
        for rank, record in enumerate(trace.ranks):
            expect.that(
                not record.values(position).get("read_only"),
                f"{named(made, position)} on rank {rank}: got a read-only result, but should get one to write to",
                "it is a view of bytes, of a file, or of another framework's array, or a scalar of NumPy: np.array() copies it",
            )


def _kept(seen: Mapping[str, Any], what: str) -> None:
    expect.that(
        not seen.get("overwritten_later"),
        f"{what}: the result was overwritten by a later operation, but should be a new array",
        "the result is a view of an internal buffer that is used again",
    )


def _compare(got: Array, want: Want, what: str, rank: int, evidence: Callable[[], Evidence]) -> None:
    """Evidence costs more than the comparison, so it is gathered only once something is wrong."""
    if want.bound is None and same_bits(got, want.value):
        return
    try:
        _look(got, want, what, rank, Evidence())
    except Finding:
        _look(got, want, what, rank, evidence())
        raise
    if want.moved and (lost := different_bits(got, want.value) & (want.value == 0)).any():
        raise Finding(
            Diagnosis(
                f"{what} on rank {rank}: got another sign of zero in {int(lost.sum())} of {lost.size} elements, but bits "
                "should be kept",
                "the values went through arithmetic, as in a sum with zeros from all other ranks",
            )
        )


def _look(got: Array, want: Want, what: str, rank: int, evidence: Evidence) -> None:
    if want.bound is None:
        expect.same_array(got, want.value, what, rank, evidence)
    else:
        expect.within(got, want.value, want.bound, what, rank, evidence)


def _evidence(job: Job, collective: Collective, rank: int) -> Evidence:
    """What the result would be if something specific had gone wrong."""
    members = members_of(collective.group, job.world_size)
    dtype = collective.tensor.dtype
    local = collective.tensor.on(rank) if isinstance(collective, AllReduce) else None
    with np.errstate(all="ignore"):
        others = tuple(
            (text, np.asarray(array).astype(dtype)) for text, array in _others(job, collective, rank, members)
        )
    otherwise = MIXED if collective.tensor.layout == "mixed" else ""
    return Evidence(
        len(members), local, others, otherwise=otherwise, moved=isinstance(collective, Broadcast | AllGather)
    )


def _others(job: Job, collective: Collective, rank: int, members: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    tensor = collective.tensor
    if isinstance(collective, Broadcast):
        poison = poison_like(tensor.on(rank))
        if rank == collective.root:
            yield (
                "what ranks other than the root passed takes part: a NaN stays one, also if it is multiplied by 0",
                poison,
            )
        yield "it is what the ranks other than the root passed: the wrong root, or nothing was received", poison
    if isinstance(collective, AllReduce):
        yield from _other_reductions(collective, members, job.world_size)
    if isinstance(collective, Broadcast | AllGather) and tensor.dtype == "float64":
        given = wants(collective, members)[rank].value
        yield "it was sent as float32: what that has no room for is rounded, zero or infinite", given.astype(np.float32)
    if isinstance(collective, ReduceScatter):
        if collective.reduction not in ("sum", "mean"):
            total = wants(replace(collective, reduction="sum"), members)[rank].value
            yield "it is the block of the sum: the reduction was not passed on", total
        yield from _other_blocks(collective, members, members.index(rank))
        for other, want in wants(collective, members).items():
            if other != rank:
                yield f"it is the block of rank {other}", want.value
    if tensor.dtype.startswith("float"):
        text = "an argument was read after the call, or its wait(), had given it back: its owner had overwritten it"
        yield text, poison_like(tensor.on(rank))
    for position in range(len(job.operations)):
        text = f"it is the array that operation {position} gave, overwritten by its owner since: two results share their memory"
        yield text, overwritten(tensor.shape, tensor.dtype, position)
    for position, made, ranks in finished(job):
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
        by = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}[collective.reduction]
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
        count = len(members) if collective.reduction == "mean" else 1
        for twice in members:
            yield f"the values of rank {twice} are counted twice", (total + tensor.on(twice)) / count
    if collective.reduction == "mean" and len(members) > 2:
        half = len(members) // 2
        first, second = (reduced(tensor, "mean", part).value for part in (members[:half], members[half:]))
        yield "it is the mean of two means, of ranks that are not equally many", (first + second) / 2
    for missing in members:
        if rest := tuple(rank for rank in members if rank != missing):
            part = reduced(tensor, collective.reduction, rest).value
            yield f"the values of rank {missing} are missing: read before they came, or lost", part


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
        return
    extreme = np.minimum if collective.reduction == "min" else np.maximum
    opposite = np.maximum if collective.reduction == "min" else np.minimum
    if dtype.kind == "u":
        signed = stack.view(dtype.name[1:])
        yield "unsigned integers are compared as signed ones", extreme.reduce(signed, axis=0).view(dtype)
    yield f"it is found by negation: the lowest {dtype} has no counterpart", -opposite.reduce(-stack, axis=0)


def _blocked(barrier: Barrier, position: int, trace: Trace) -> None:
    """No member left before every member had entered."""
    members = members_of(barrier.group, len(trace.ranks))
    records = {
        rank: next(record for record in trace.ranks[rank].records if record.operation == position) for rank in members
    }
    latest = max(members, key=lambda rank: records[rank].entered)
    for rank in members:
        left, entered = records[rank].left, records[latest].entered
        if left is not None and left < entered:
            waited = left - records[rank].entered
            gave_up = f"it gave up after {waited:.1f} s: a time limit of its own; or " * (waited > _LONG)
            raise Finding(
                Diagnosis(
                    f"{named(barrier, position)}: rank {rank} left {1000 * (entered - left):.0f} ms before rank {latest} "
                    f"entered, but should have waited for it",
                    f"{gave_up}the barrier does not block, or it was paired with another barrier",
                )
            )


def _as_laid_out(array: Array, sent: str, received: str) -> Iterator[tuple[str, Array]]:
    """An array whose elements go as they lie in memory, or are put there as they come."""
    if array.ndim:
        if sent == "F":
            yield "it was sent as it lies in memory, column by column", array.ravel(order="F").reshape(array.shape)
        if received == "F":
            by_columns = array.ravel().reshape(array.shape, order="F")
            yield "it was written as it came, row by row, where memory lies column by column", by_columns
        if sent == "reversed" or received == "reversed":
            yield "it went as it lies in memory, where the rows are in reverse", array[::-1]


def _received(job: Job, operation: SendRecv, position: int, trace: Trace) -> None:
    """Every receiver has the sender's array."""
    arrays = [operation.tensor.on(rank) for rank in range(len(trace.ranks))]
    wrong_senders = tuple(
        (f"it is the array of rank {rank}: the wrong sender", array) for rank, array in enumerate(arrays)
    )
    for source, dest in operation.pairs:
        got = trace.ranks[dest].values(position)["received"][f"{source}>{dest}"]
        what = f"{named(operation, position)}: what rank {source} sent"
        want = Want(arrays[source], moved=True)

        def evidence(source: int = source, dest: int = dest) -> Evidence:
            others = tuple(
                (
                    f"it is what rank {source} sent in operation {place}: messages overtake each other",
                    each.tensor.on(source),
                )
                for place, each in enumerate(job.operations)
                if isinstance(each, SendRecv) and (source, dest) in each.pairs and place != position
            )
            text = "the array was read after send() had given it back: its owner had overwritten it"
            overwritten_since = ((text, poison_like(arrays[source])),) * arrays[source].dtype.name.startswith("float")
            array, layout = arrays[source], operation.tensor.layout_on
            never = "it is what recv() was given: nothing was written there, or into a copy", unreceived(array)
            laid_out = _as_laid_out(array, layout(source), layout(dest))
            known = (*overwritten_since, never, *laid_out, *wrong_senders, *others)
            return Evidence(len(arrays), None, known, moved=True)

        _compare(got, want, what, dest, evidence)
