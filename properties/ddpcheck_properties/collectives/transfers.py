"""Collectives that move arrays, barriers, messages between two ranks, and all kinds in a row."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations, product
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes.cause import Given
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.collectives.circumstances import FailedJob, late_rank_missed
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Job,
    Operation,
    ReduceScatter,
    SendRecv,
    Sleep,
    TensorSpec,
)
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_all, for_each, has_time_for_long_jobs
from ..judges import with_causes
from ..strategies_collectives import (
    EVERY_LAYOUT,
    LAYOUTS,
    all_gathers,
    broadcasts,
    collectives,
    dtypes,
    every_dtype,
    every_dtype_laid_out,
    exact_tensor,
    extremes,
    fitting_reductions,
    floating,
    jobs,
    reduce_scatters,
    reductions,
    send_recvs,
    usual_reduction,
)
from .all_reduce import PAST_64_KIB
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

LATE = 0.05
"""Seconds by which a rank is late: a hundred times the duration of a barrier between processes of one host."""
A_LITTLE = 0.0005
MANY = 258
"""More barriers than a byte can count."""
MANY_SECONDS = 2.0
STRAGGLES = (4.0, 12.0)
"""Seconds by which a rank is late in long profiles: beyond time limits of a few and of ten seconds."""
NAP = 0.5
"""Seconds of each sleep: a rank that sleeps longer than the deadline would count as hung."""
VERY_LATE = 1.2
"""Longer than a second: a late rank must not count as ended."""


@law("collectives", needs.collectives.operations("broadcast"), level=Level.BASIC)
def check_broadcast_gives_every_rank_the_root_array(session: Session) -> None:
    """Broadcast gives every rank the root's array, bit for bit, from every root and for every value of the dtype."""
    world, promised = session.world_size, session.capabilities
    examples = [
        Job(world, tuple(Broadcast(special, root) for root in range(world)))
        for dtype in dtypes(promised)
        for special in (
            TensorSpec((40,), dtype, "special"),
            TensorSpec((0, 3), dtype),
            TensorSpec((), dtype, "special"),
        )
    ]
    examples += [Job(world, tuple(Broadcast(large, root) for root in range(world))) for large in _large(session)]
    examples.append(Job(world, tuple(Broadcast(tensor, world - 1) for tensor in _laid_out(session))))
    for_all(session, jobs(world, broadcasts(world, promised, (None,))), results_hold, examples=examples, share=0.5)


@law("collectives", needs.collectives.operations("all_gather"), level=Level.BASIC)
def check_all_gather_stacks_in_rank_order(session: Session) -> None:
    """All-gather gives every rank the arrays of all ranks, bit for bit, in rank order."""
    world, promised = session.world_size, session.capabilities
    shapes = ((1, 7), (1,), (40,), (), (0,), (0, 3), (3, 0))  # odd shapes follow others with their dtype
    examples = [
        Job(world, tuple(AllGather(TensorSpec(shape, dtype, "special", 1)) for shape in shapes))
        for dtype in dtypes(promised)
    ]
    examples += [Job(world, (AllGather(large),)) for large in _large(session)]
    examples.append(Job(world, tuple(map(AllGather, _laid_out(session)))))
    for_all(session, jobs(world, all_gathers(world, promised, (None,))), results_hold, examples=examples, share=0.5)


@law("collectives", needs.collectives.operations("reduce_scatter"), level=Level.BASIC)
def check_reduce_scatter_gives_each_rank_its_block(session: Session) -> None:
    """Reduce-scatter gives rank r the r-th block of rows of the exact reduction."""
    world, promised = session.world_size, session.capabilities
    examples = [
        Job(
            world,
            tuple(
                ReduceScatter(exact_tensor((rows * world, *rest), dtype, reduction, world, 3), reduction)
                for rows, rest in ((1, ()), (2, (3,)), (2, (3, 2)), (0, ()), (1, (0,)))
            ),
        )
        for reduction in reductions(promised)
        for dtype in dtypes(promised, floats=reduction == "mean")[:2]
    ]
    of_each = [
        ReduceScatter(exact_tensor((world, 5), dtype, reduction, world, 5), reduction)
        for dtype, reduction in every_dtype(promised)
    ]
    of_each += [ReduceScatter(tensor, each) for tensor, each in extremes(promised, 20 * world)]
    examples += [Job(world, tuple(of_each))] * bool(of_each)
    offered = dtypes(promised)[0]
    reduction = next(iter(fitting_reductions(promised, offered)), None)
    if reduction:
        large = ReduceScatter(exact_tensor((131 * world, 127), offered, reduction, world, 6), reduction)
        laid_out = [
            ReduceScatter(exact_tensor((2 * world, 3), offered, reduction, world, 7, layout), reduction)
            for layout in EVERY_LAYOUT
        ]
        permuted = exact_tensor((2 * world, 3, 2), offered, reduction, world, 7, "permuted")
        laid_out.append(ReduceScatter(permuted, reduction))
        rows = PAST_64_KIB[0] * PAST_64_KIB[1] // 3
        laid_out += [
            ReduceScatter(exact_tensor((rows // world * world, 3), dtype, each, world, 7, layout), each)
            for dtype, each, layout in every_dtype_laid_out(promised)
        ]
        examples.append(Job(world, (large, *laid_out)))
    for_all(session, jobs(world, reduce_scatters(world, promised, (None,))), results_hold, examples=examples, share=0.5)


@law("collectives", needs.collectives.operations("barrier"), needs.ranks(2), level=Level.BASIC)
def check_barrier_waits_for_every_rank(session: Session) -> None:
    """No rank leaves a barrier before every rank has entered it, whichever rank is late, and for any number of barriers in a
    row.

    The late rank is later than a barrier takes, so a barrier that waits for a limited time shows.
    """
    world = session.world_size
    took: list[float] = []

    def timed(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        took.extend(record.left - record.entered for rank in trace.ranks for record in rank.records if record.left)

    for_each(session, [Job(world, (Barrier(), Barrier()))], timed)
    late = min(LATE + 2 * max(took, default=0.0), VERY_LATE)
    one_late: list[Operation] = []
    for rank in range(world):
        one_late += [Sleep(rank, late), Barrier()]
    last_late_twice: list[Operation] = [Barrier(), Barrier(), Sleep(world - 1, late), Barrier(), Barrier()]
    drawn = [Job(world, tuple(one_late)), Job(world, tuple(last_late_twice))]
    if world == 2:  # each rank is late in turn: enough to find a rank that does not wait
        often = min(MANY, int(MANY_SECONDS / max([*took, 1e-6])))
        row = ((Sleep(number % 2, A_LITTLE), Barrier()) for number in range(often))
        drawn.append(Job(world, tuple(operation for pair in row for operation in pair)))
    for_each(session, drawn, results_hold)


@law("collectives", needs.collectives.operations("send_recv"), needs.ranks(2), level=Level.BASIC)
def check_send_recv_delivers_messages_unchanged(session: Session) -> None:
    """Every message arrives bit for bit as it was sent: between all pairs of ranks, in both directions, around a ring, and
    several in a row.
    """
    world, promised = session.world_size, session.capabilities
    ring = tuple((rank, (rank + 1) % world) for rank in range(world))
    back = tuple((dest, source) for source, dest in reversed(ring))
    pairs = tuple(permutations(range(world), 2))
    examples = [
        Job(world, (SendRecv(TensorSpec(shape, dtype, "special", 2, layout), order),))
        for dtype, shape, layout in zip(
            dtypes(promised) * 3, ((5,), (), (0,), (3, 2), (40,), (4, 3)), LAYOUTS, strict=False
        )
        for order in (pairs, ring, back)
    ]
    small = TensorSpec((3,), dtypes(promised)[0])
    around = (ring, tuple((dest, source) for source, dest in ring))
    examples += [
        Job(world, (SendRecv(large, way), SendRecv(small, way)))
        for large, way in zip(_large(session), around, strict=False)
    ]
    examples.append(Job(world, tuple(SendRecv(replace(small, seed=seed), ring) for seed in range(4))))
    examples.append(Job(world, tuple(SendRecv(tensor, ring) for tensor in _laid_out(session))))
    # rank 1 is the first from which rank 0 receives, and the last to send
    others = tuple((rank, 0) for rank in range(1, world))
    examples.append(Job(world, (Sleep(1, LATE), SendRecv(small, others), SendRecv(replace(small, seed=1), others))))
    # many messages to a receiver that is not ready yet, in two shapes
    waiting = (SendRecv(replace(small, seed=seed, shape=(3 + seed % 2,)), ((0, 1),)) for seed in range(40))
    examples.append(Job(world, (Sleep(1, LATE), *waiting)))
    for_all(session, jobs(world, send_recvs(world, promised), 1, 4), results_hold, examples=examples, share=0.5)


@law("collectives", needs.collectives, level=Level.BASIC)
def check_consecutive_collectives_are_independent(session: Session) -> None:
    """Consecutive collectives of different kinds and sizes each give their own result. Nothing is left over from one to the
    next.
    """
    world, promised = session.world_size, session.capabilities
    examples: list[Job] = []
    if "all_reduce" in promised.collectives.operations:
        dtype, reduction = dtypes(promised)[0], reductions(promised)[0]
        sizes = (1, 1000, 2, 0, 1, 5000, 3, 0, 0, 2, 1000, 1)
        mixed: list[Operation] = []
        alone = [AllReduce(exact_tensor((size,), dtype, reduction, world, size), reduction) for size in sizes]
        for seed, size in enumerate(sizes):
            mixed.append(AllReduce(exact_tensor((size,), dtype, reduction, world, seed), reduction))
            if "broadcast" in promised.collectives.operations:
                mixed.append(Broadcast(TensorSpec((size + 1,), dtype, seed=seed), seed % world))
        examples = [Job(world, tuple(mixed)), Job(world, tuple(alone))]
    for_all(session, jobs(world, collectives(world, promised), 2, 8), results_hold, examples=examples)


@law("collectives", needs.collectives, needs.ranks(2))
def check_late_ranks_do_not_change_results(session: Session) -> None:
    """Collectives wait for a late rank. No timeout or retry changes a result, then or later, and no rank is left out for
    being late.

    In long profiles, the rank is 12 seconds late.
    """
    world = session.world_size
    pairs = _with_late_ranks(session)
    made = [operation for _, operation in pairs]
    row = tuple(operation for pair in pairs for operation in pair)
    judge = with_causes(results_hold, _causes_of_lateness)
    for_each(session, [Job(world, (*row, *made)), *_with_a_very_late_rank(session, made[:1])], judge)
    if world == 2 and has_time_for_long_jobs(session):
        for seconds in STRAGGLES:
            for_each(session, [Job(world, (*made, *straggling(1, seconds), *made))], judge)


def _with_late_ranks(session: Session) -> list[tuple[Sleep, Operation]]:
    """Each promised operation, small and large, and the sleep of a rank before it. The ranks take turns, so each is late for
    some operations, and each kind of operation has a first and a last rank that is.
    """
    world, promised = session.world_size, session.capabilities
    dtype = dtypes(promised)[0]
    reduction = usual_reduction(promised, dtype)
    pairs: list[tuple[Sleep, Operation]] = []
    for seed in range(world):
        shape = (world, 20_011) if seed % 2 else (world,)  # beyond 64 KiB, and small
        tensor = exact_tensor(shape, dtype, reduction, world, seed)
        every: tuple[Operation, ...] = (
            AllReduce(tensor, reduction),
            Broadcast(tensor, seed),
            AllGather(tensor),
            ReduceScatter(tensor, reduction),
            SendRecv(tensor, ((seed, (seed + 1) % world), ((seed + 1) % world, seed))),
            Broadcast(tensor, (5 + seed) % world),  # from the late rank
        )
        pairs += [(Sleep((number + seed) % world, LATE / 2), operation) for number, operation in enumerate(every)]
    if promised.has(CallForm.SUBGROUPS) and world > 2:
        for group in ((0, world - 1), tuple(range(1, world))):
            of_group = AllReduce(exact_tensor((3,), dtype, reduction, len(group), 7), reduction, group)
            pairs.append((Sleep(group[-1], LATE / 2), of_group))
    return [pair for pair in pairs if pair[1].kind in promised.collectives.operations]


def _with_a_very_late_rank(session: Session, usual: list[Operation]) -> list[Job]:
    """At most one Job at each world size, because it takes long."""
    world, promised = session.world_size, session.capabilities
    dtype = dtypes(promised)[0]
    if world == 2:
        return [Job(world, (Sleep(1, VERY_LATE), operation)) for operation in usual]
    if world == 3:  # rank 1 waits for the message of rank 0, rank 2 at the barrier
        both = (SendRecv(TensorSpec((3,), dtype, seed=9), ((0, 1),)), Barrier())
        offered = [each for each in both if each.kind in promised.collectives.operations] or usual
        return [Job(world, (Sleep(0, VERY_LATE), *offered))]
    if world == 4 and promised.has(CallForm.SUBGROUPS):  # each waits for rank 0 in a group of two, one after the other
        reduction = usual_reduction(promised, dtype)
        pair = exact_tensor((3,), dtype, reduction, 2, 8)
        apart = (AllReduce(pair, reduction, (0, 1)), Broadcast(pair, 0, (0, 2)), AllGather(pair, (0, 3)))
        among = [each for each in apart if each.kind in promised.collectives.operations]
        return [Job(world, (Sleep(0, VERY_LATE), *among))] * bool(among)
    return []


def straggling(rank: int, seconds: float) -> list[Operation]:
    """This rank is late by this number of seconds."""
    return [Sleep(rank, NAP)] * math.ceil(seconds / NAP)


def _causes_of_lateness(job: Job, trace: Trace, finding: Finding) -> Given:
    """A result without a late rank's part shows a missing wait for that rank."""
    return late_rank_missed(FailedJob(job, trace, finding.diagnosis.causes, finding.diagnosis.operation), NAP)


def _large(session: Session) -> list[TensorSpec]:
    """Beyond 64 KiB, once in floats and once in integers."""
    offered = dtypes(session.capabilities)
    floats, integers = dtypes(session.capabilities, floats=True), [each for each in offered if not floating(each)]
    return [TensorSpec(PAST_64_KIB, among[-1], "special") for among in (floats, integers) if among]


def _laid_out(session: Session) -> list[TensorSpec]:
    """Every memory layout, in one and two dimensions, and beyond 64 KiB; one of three dimensions."""
    offered = dtypes(session.capabilities)
    found = [
        TensorSpec(shape, offered[number % len(offered)], "special", 8, layout)
        for number, (layout, shape) in enumerate(product(EVERY_LAYOUT, ((5,), (3, 2), PAST_64_KIB)))
    ]
    return [*found, TensorSpec((2, 3, 4), offered[0], "special", 8, "permuted")]
