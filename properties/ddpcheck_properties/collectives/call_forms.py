"""Call forms that are rarely tested: asynchronous calls, groups, reduce-scatter, and every array size."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Broadcast,
    Job,
    Operation,
    ReduceScatter,
    SendRecv,
    TensorSpec,
    Wait,
)
from ddpcheck.trace import Trace

from ..drawing import for_each, has_time_for_long_jobs, runs_all_jobs
from ..strategies_collectives import (
    EVERY_LAYOUT,
    Reduction,
    dtypes,
    every_dtype,
    every_dtype_laid_out,
    exact_tensor,
    fitting_reductions,
    parts,
    subsets,
    usual_dtype,
    usual_reduction,
)
from .comparison import can_be_written_to, results_hold, results_hold_and_arguments_stay

if TYPE_CHECKING:
    from ddpcheck.session import Session

SIZES = tuple(dict.fromkeys(int(2 ** (half / 2)) for half in range(33)))
"""1 to 65,536 elements, each size about 1.4 times the one before: ranges of sizes with their own algorithm are at least that
wide.
"""
COMPOSITE = (720, 5040, 27_720)
"""Multiples of 2 to 10, and of most chunk, vector and row sizes, so that there is no remainder."""
AROUND_CHUNKS = tuple(size + more for size in (1024, 4096, 16384) for more in (-1, 1))
"""One element less and more than chunks of powers of two hold: the last chunk is one short, or has one element."""
CALLS = 258
"""More calls than a byte can count."""
LARGE = (127, 131)
"""Past 64 KiB in float32; no group size divides it."""


def large_rows(ranks: int) -> tuple[int, int]:
    """The shape of a float32 array past 64 KiB, whose rows divide evenly among this number of ranks."""
    return -(-60 // ranks) * ranks, 300


def other_ways(world_size: int, promised: Capabilities, tensor: TensorSpec, reduction: Reduction) -> list[Job]:
    """The reduction of this tensor asynchronously, in the group without rank 0, both together, and by
    reduce-scatter.
    """
    found: list[tuple[Operation, ...]] = []
    if promised.has(CallForm.ASYNCHRONOUS):
        found.append((AllReduce(tensor, reduction, wait=False), Wait(0)))
    if promised.has(CallForm.SUBGROUPS) and world_size > 1:
        rest = tuple(range(1, world_size))
        found.append((AllReduce(tensor, reduction, rest),))
        if promised.has(CallForm.ASYNCHRONOUS):
            found[-1] += AllReduce(tensor, reduction, rest, wait=False), Wait(1)
    if "reduce_scatter" in promised.collectives.operations and tensor.shape[0] % world_size == 0:
        found.append((ReduceScatter(tensor, reduction),))
    return [Job(world_size, operations) for operations in found]


@law("collectives", needs.collectives)
def check_collectives_are_correct_at_every_array_size(session: Session) -> None:
    """Collectives are correct at every array size from one element to several hundred KiB. Sizes grow by half, lie next to
    powers of two, or have many divisors.
    """
    world, promised = session.world_size, session.capabilities
    dtype, reduction = usual(promised)
    kinds: dict[str, list[Operation]] = {"all_reduce": [], "broadcast": [], "all_gather": [], "reduce_scatter": []}
    if world > 1:
        kinds["send_recv"] = []
    for seed, size in enumerate((*SIZES, *COMPOSITE, *AROUND_CHUNKS)):
        moved = TensorSpec((size,), dtype, "special" if size in SIZES else "lattice", seed)
        kinds["all_reduce"].append(AllReduce(exact_tensor((size,), dtype, reduction, world, seed), reduction))
        kinds["broadcast"].append(Broadcast(moved, seed % world))
        kinds["all_gather"].append(AllGather(moved))
        rows = exact_tensor((-(-size // world) * world,), dtype, reduction, world, seed)
        kinds["reduce_scatter"].append(ReduceScatter(rows, reduction))
        if world > 1:
            kinds["send_recv"].append(SendRecv(moved, ((0, world - 1),)))
    for_each(
        session,
        [Job(world, tuple(kinds[kind])) for kind in kinds if kind in promised.collectives.operations],
        results_hold,
    )


@law("collectives", needs.collectives)
def check_call_counters_do_not_wrap(session: Session) -> None:
    """More consecutive calls of one kind than a byte can count are all correct. No counter of calls or handles wraps.

    Each world size checks one kind of call; long profiles check all kinds. Where all Jobs are drawn, calls in a group and
    seventy concurrent asynchronous calls are checked as well. A slow implementation gets its calls in several Jobs.
    """
    world, promised = session.world_size, session.capabilities
    dtype, reduction = usual(promised)
    reduced = [exact_tensor((2 * world,), dtype, reduction, world, seed) for seed in range(3)]
    moved = [TensorSpec((3,), dtype, "lattice", seed) for seed in range(3)]
    kinds: dict[str, tuple[Operation, ...]] = {
        "all_reduce": tuple(AllReduce(tensor, reduction) for tensor in reduced),
        "all_gather": tuple(AllGather(tensor) for tensor in moved),
        "broadcast": tuple(Broadcast(tensor) for tensor in moved),
        "reduce_scatter": tuple(ReduceScatter(tensor, reduction) for tensor in reduced),
    }
    if world > 1:
        kinds["send_recv"] = tuple(SendRecv(tensor, ((0, world - 1),)) for tensor in moved)
    offered = [operations for kind, operations in kinds.items() if kind in promised.collectives.operations]
    chosen = offered if has_time_for_long_jobs(session) else offered[(world - 1) % max(1, len(offered)) :][:1]
    if (
        runs_all_jobs(session)
        and promised.has(CallForm.SUBGROUPS)
        and world > 1
        and "all_reduce" in promised.collectives.operations
    ):
        ends = (0, world - 1)
        inside = (
            AllReduce(exact_tensor((2,), dtype, reduction, len(ends), seed), reduction, ends) for seed in range(3)
        )
        chosen.append(tuple(inside))
    drawn = [job for operations in chosen for job in _in_time(session, operations)]
    if runs_all_jobs(session) and promised.has(CallForm.ASYNCHRONOUS):
        started = tuple(AllReduce(reduced[number % 3], reduction, wait=False) for number in range(70))
        drawn.append(Job(world, (*started, *map(Wait, range(69, -1, -1)))))
    for_each(session, drawn, results_hold)


@law("collectives", needs.collectives, needs.collectives.writable_results)
def check_collective_results_are_writable(session: Session) -> None:
    """Callers can overwrite the results of collectives. This holds for small and large arrays, with or without dimensions,
    for results of wait(), and in a group of one.
    """
    world, promised = session.world_size, session.capabilities
    dtype, reduction = usual(promised)
    made: list[Operation] = []
    for shape in ((2 * world,), (), (0,), (60 * world, 300)):
        tensor = exact_tensor(shape, dtype, reduction, world, 3)
        made += [AllReduce(tensor, reduction), Broadcast(tensor), AllGather(tensor)]
        made += [ReduceScatter(tensor, reduction)] * bool(shape)
        made += [SendRecv(tensor, ((0, 1),))] * (world > 1)
    small = exact_tensor((2,), dtype, reduction, world, 4)
    if promised.has(CallForm.SUBGROUPS):
        made += [AllReduce(small, reduction, (0,)), Broadcast(small, 0, (0,)), AllGather(small, (0,))]
    made = [one for one in made if one.kind in promised.collectives.operations]
    if promised.has(CallForm.ASYNCHRONOUS):
        made += [AllReduce(small, reduction, wait=False), Wait(len(made))]
    for_each(session, [Job(world, tuple(made))], can_be_written_to)


@law("collectives", needs.collectives, needs.collectives.subgroups, needs.ranks(2))
def check_group_collectives_are_correct_for_any_array(session: Session) -> None:
    """In every group, broadcast works from each root and all-gather keeps rank order. Reductions and large arrays are
    correct for every dtype and memory layout, and for arrays without dimensions or elements. Arguments do not change, and
    results share memory with nothing else.
    """
    world, promised = session.world_size, session.capabilities
    dtype, reduction = usual(promised)
    large = cycle(TensorSpec(large_rows(world), each, "special", 5) for each in (dtype, *dtypes(promised)))
    offered = cycle(dtypes(promised))
    small = (TensorSpec((7, 19), next(offered), "special", 5, layout) for layout in cycle(EVERY_LAYOUT))
    groups = subsets(world)
    among = fitting_reductions(promised, dtype)
    some = parts(world)
    in_usual: list[tuple[str, Reduction]] = [(dtype, each) for each in among]
    others = [pair for pair in every_dtype(promised) if pair not in in_usual]
    # at W = 2 the only group is that of all ranks
    several = [*in_usual, *others] if world > 2 else in_usual
    count = max(len(some), len(several)) if among else 0
    rest = tuple(range(1, world))
    rows = exact_tensor((60 * len(rest), 300), dtype, reduction, len(rest), 6)
    kinds: dict[str, list[AllReduce | Broadcast | AllGather | ReduceScatter]] = {
        "broadcast": [Broadcast(next(small), root, group) for group in groups for root in group],
        "all_gather": [AllGather(next(small), group) for group in groups],
        "reduce_scatter": [
            ReduceScatter(exact_tensor((2 * len(group),), dtype, each, len(group), 8), each, group)
            for group in groups
            for each in among
        ],
        "all_reduce": [
            _in_a_group(each, by, group) for (each, by), group in islice(zip(cycle(several), cycle(some)), count)
        ],
    }
    of_each = zip(every_dtype_laid_out(promised), cycle(parts(world)), strict=False)
    kinds["reduce_scatter"] += [
        ReduceScatter(exact_tensor((2 * len(group), 5), each, by, len(group), 9, layout), by, group)
        for (each, by, layout), group in of_each
    ]
    kinds["reduce_scatter"].append(ReduceScatter(rows, reduction, rest))
    for shape, each, group in zip(((), (0, 3), (1,)), cycle(dtypes(promised)), cycle(some)):
        odd = TensorSpec(shape, each, "special", 5)
        kinds["broadcast"].append(Broadcast(odd, group[-1], group))
        kinds["all_gather"].append(AllGather(odd, group))
    kinds["broadcast"] += [Broadcast(next(large), group[-1], group) for group in some]
    kinds["all_gather"] += [AllGather(next(large), group) for group in some]
    for kind in kinds:
        kinds[kind] += [replace(each, tensor=replace(each.tensor, seed=8)) for each in kinds[kind][-1:]]

    of_kinds = [Job(world, tuple(kinds[kind])) for kind in kinds if kind in promised.collectives.operations]
    for_each(session, of_kinds, results_hold_and_arguments_stay)


def _in_a_group(dtype: str, reduction: Reduction, group: tuple[int, ...]) -> AllReduce:
    return AllReduce(exact_tensor(LARGE, dtype, reduction, len(group), 7), reduction, group)


def _in_time(session: Session, operations: tuple[Operation, ...]) -> list[Job]:
    """CALLS of these operations in turn, in one Job or, for a slow implementation, in several."""
    took: list[float] = []

    def timed(job: Job, trace: Trace) -> None:
        results_hold(job, trace)
        took.extend(record.left - record.entered for record in trace.ranks[0].records if record.left)

    for_each(session, [Job(session.world_size, operations)], timed)
    affordable = session.deadline / 2 / max([*took, 1e-6])
    turns = max(1, min(CALLS // 3, int(affordable / len(operations))))
    return [Job(session.world_size, operations * turns)] * -(-CALLS // 3 // turns)


def usual(promised: Capabilities) -> tuple[str, Reduction]:
    """float32 if promised, and a promised reduction."""
    dtype = usual_dtype(promised)
    return dtype, usual_reduction(promised, dtype)
