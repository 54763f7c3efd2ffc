"""Collectives in groups of ranks, and several pending all-reduces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, cycle, product, repeat
from typing import TYPE_CHECKING, Literal

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
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
    Start,
    Wait,
)

from ..drawing import for_all, for_each
from ..strategies import choice
from ..strategies_collectives import (
    Reduction,
    all_reduces,
    collectives,
    dtypes,
    every_dtype,
    every_dtype_laid_out,
    exact_tensor,
    extremes,
    fitting_reductions,
    jobs,
    parts,
    reductions,
    subsets,
    usual_reduction,
)
from .all_reduce import PAST_64_KIB
from .comparison import results_hold, results_hold_and_arguments_stay
from .transfers import LATE

if TYPE_CHECKING:
    from ddpcheck.session import Session

Order = Literal["forwards", "backwards", "odd first"]
OF_GROUPS = (5, 71, 130, 1025)
"""Elements; two or three ranks leave one or two over."""
ORDERS: tuple[Order, ...] = ("backwards", "odd first", "forwards")
_LARGE_ONES = 8
"""The most groups at once."""
_UNDER_WAY = 128
"""The most all-reduces at once: with 648 in 120 groups of 7 ranks MPICH 5 may wait for ever for a finished one."""
_OF_A_GROUP = ("reduce_scatter", "broadcast", "barrier", "all_gather", "all_reduce")


@law("collectives", needs.collectives, needs.collectives.subgroups, needs.ranks(2))
def check_concurrent_groups_are_independent(session: Session) -> None:
    """Every group's collective gives its own result. Disjoint groups run at the same time, overlapping groups in turn, with
    calls of all ranks in between. A group's first call may be of any kind.
    """
    world, promised = session.world_size, session.capabilities
    even, odd = tuple(range(0, world, 2)), tuple(range(1, world, 2))
    first, rest = (0,), tuple(range(1, world))
    begun = _each_begins_otherwise(world, promised)
    # on ranks that have run other Jobs the first call in a group would not be the first
    for_each(session, [replace(begun, start=Start()) if session.starts_again else begun], results_hold)
    examples: list[Job] = []
    if "all_reduce" in promised.collectives.operations:
        among = reductions(promised)
        order = (even, odd, None, first, rest, None, odd, even, tuple(range(world - 1)), rest)
        reduced = tuple(
            _reduction(promised, among[seed % len(among)], group, world, seed) for seed, group in enumerate(order)
        )
        examples.append(Job(world, reduced))
        # ranks meet these groups in different orders: pairs that cross, side by side, and with equal sums
        pairs = [(a, b) for a, b in ((0, world - 1), (1, 2), (0, 1), (world - 2, world - 1), (0, 2)) if a < b < world]
        crossing = (
            _reduction(promised, among[0], group, world, seed, 5 + seed % 3)
            for seed, group in enumerate([*pairs, *pairs[::-1], *pairs])
        )
        examples.append(Job(world, tuple(crossing)))
    if "reduce_scatter" in promised.collectives.operations:
        dtype = dtypes(promised)[0]
        examples += [
            Job(
                world,
                tuple(
                    ReduceScatter(exact_tensor((2 * len(group), 3), dtype, reduction, len(group), 4), reduction, group)
                    for group in subsets(world)
                ),
            )
            for reduction in fitting_reductions(promised, dtype)
        ]
    drawn = jobs(world, collectives(world, promised, groups=(*subsets(world), None)), 2, 6)
    for_all(session, drawn, results_hold, examples=examples)


def _each_begins_otherwise(world: int, promised: Capabilities) -> Job:
    """The first call in each group has another kind and creates the group's resources; kinds depend on the world
    size.
    """
    kinds = [kind for kind in _OF_A_GROUP if kind in promised.collectives.operations]
    made: list[Operation] = []
    several = (group for group in subsets(world) if len(group) > 1)
    for seed, (group, kind) in enumerate(zip(several, cycle(kinds[world - 2 :] + kinds[: world - 2]), strict=False)):
        reduced = _reduction(
            promised, usual_reduction(promised, _usual_dtype(promised)), group, world, seed, 2 * len(group)
        )
        begun: dict[str, Operation] = {
            "reduce_scatter": ReduceScatter(reduced.tensor, reduced.reduction, group),
            "broadcast": Broadcast(reduced.tensor, group[-1], group),
            "all_gather": AllGather(reduced.tensor, group),
            "barrier": Barrier(group),
            "all_reduce": reduced,
        }
        made += [Sleep(group[seed % len(group)], LATE / 2)] * (kind == "barrier") + [begun[kind]]
        made += [_reduction(promised, reduced.reduction, None, world, seed)] * ("all_reduce" in kinds)
    return Job(world, tuple(made))


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.subgroups, needs.ranks(2))
def check_groups_reduce_over_their_members_only(session: Session) -> None:
    """All-reduce in a group gives its members the reduction over that group. A mean divides by the group size."""
    world, promised = session.world_size, session.capabilities
    sequence = subsets(world)  # includes the group of all ranks
    one_reduction = [
        Job(world, tuple(_reduction(promised, reduction, group, world) for group in sequence))
        for reduction in reductions(promised)
    ]
    drawn = jobs(world, all_reduces(world, promised, groups=subsets(world)))
    of_each = [
        AllReduce(exact_tensor(shape, dtype, reduction, len(group)), reduction, group)
        for (dtype, reduction), group, size in zip(
            every_dtype(promised), cycle(parts(world)), cycle(OF_GROUPS), strict=False
        )
        for shape in ((size,), (), (0,))
    ]
    of_each += [
        AllReduce(tensor, each, group) for (tensor, each), group in zip(extremes(promised, 40), cycle(parts(world)))
    ]
    for_all(session, drawn, results_hold, examples=[*one_reduction, Job(world, tuple(of_each))], share=0.5)


@law("collectives", needs.collectives.operations("barrier"), needs.collectives.subgroups, needs.ranks(2))
def check_group_barrier_waits_for_its_members(session: Session) -> None:
    """No member leaves a group's barrier before every member has entered it, even if other ranks are at another group's
    barrier.
    """
    world = session.world_size
    groups = [(0, world - 1), tuple(range(1, world)), tuple(range(world))] if world > 2 else [(0, 1)]
    drawn = [
        Job(world, (Sleep(group[-1], LATE), Barrier(group), Sleep(group[0], LATE), Barrier(group))) for group in groups
    ]
    if world > 2:  # two groups with a common rank, which waits in one group while the other is waited for
        drawn += [
            Job(world, (Sleep(late, LATE), Barrier(waiting), Barrier(meanwhile)))
            for late, waiting, meanwhile in ((1, (0, 1), (0, 2)), (1, (1, 2), (0, 2)))
        ]
    for_each(session, drawn, results_hold)


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.asynchronous)
def check_pending_all_reduces_keep_their_own_results(session: Session) -> None:
    """Several all-reduces started before any wait(), and waited for in any order, each give their own result.

    This holds in groups, for arrays of any size, dtype and memory layout, and with blocking calls in between. Results share
    no memory.
    """
    world, promised = session.world_size, session.capabilities
    reduction = reductions(promised)[0]
    examples = [
        _under_way(
            world,
            [_reduction(promised, reduction, None, world, seed, size, wait=False) for seed, size in enumerate(sizes)],
            order,
        )
        for sizes in ((4, 4, 4), (70_000, 1, 0, 300))
        for order in ORDERS
    ]
    same = [_reduction(promised, each, None, world, 7, wait=False) for each in reductions(promised)]
    between = _reduction(promised, reduction, None, world, 8)
    examples.append(Job(world, (*same, between, *map(Wait, range(len(same))), between)))
    large = PAST_64_KIB[0] * PAST_64_KIB[1]
    for size in (4, large):
        examples += _with_others_between(
            world, promised, _reduction(promised, reduction, None, world, 7, size, wait=False)
        )
    several = [
        AllReduce(exact_tensor(shape, dtype, each, world, 9), each, wait=False)
        for shape in ((5,), ())
        for dtype, each in every_dtype(promised)
    ]
    for shape in ((3, 2), PAST_64_KIB):
        several += [
            AllReduce(exact_tensor(shape, dtype, each, world, 9, layout), each, wait=False)
            for dtype, each, layout in every_dtype_laid_out(promised)
        ]
    several += [AllReduce(tensor, each, wait=False) for tensor, each in extremes(promised, 40)]
    examples.append(_under_way(world, several, "forwards"))
    if promised.has(CallForm.SUBGROUPS):
        members = [group for group in subsets(world) if len(group) < world]
        sizes = chain((4, large, 0, 71) * _LARGE_ONES, repeat(4))
        started = [
            _reduction(promised, each, group, world, 9, size, wait=False)
            for (each, group), size in zip(product(reductions(promised), members), sizes, strict=False)
        ]
        started += [
            AllReduce(exact_tensor((3, 2), dtype, each, len(group), 9, layout), each, group, wait=False)
            for (dtype, each, layout), group in zip(every_dtype_laid_out(promised), cycle(parts(world)))
        ]
        pieces = [started[start : start + _UNDER_WAY] for start in range(0, len(started), _UNDER_WAY)]
        examples += [_under_way(world, piece, order) for piece in pieces for order in ORDERS[::2]]

    for_all(session, under_way(world, promised), results_hold_and_arguments_stay, examples=examples, share=0.5)


def _with_others_between(world: int, promised: Capabilities, started: AllReduce) -> list[Job]:
    """Other collectives of equal shape and dtype while an all-reduce is pending, and a barrier with a late rank."""
    tensor, group = started.tensor, (0, world - 1)
    others: dict[str, tuple[Operation, ...]] = {
        "broadcast": tuple(Broadcast(replace(tensor, seed=3), root) for root in range(world)),
        "all_gather": (AllGather(replace(tensor, seed=4)),),
        "reduce_scatter": (
            ReduceScatter(replace(tensor, seed=5, shape=(tensor.shape[0] * world,)), started.reduction),
        ),
        "barrier": (Sleep(world - 1, LATE), Barrier()) if world > 1 else (Barrier(),),
    }
    if world > 2 and promised.has(CallForm.SUBGROUPS):
        rest = tuple(range(1, world))
        others["all_reduce"] = tuple(
            AllReduce(replace(tensor, seed=seed), started.reduction, each)
            for seed, each in enumerate((rest, None, group), start=3)
        )
        others["barrier"] += (Sleep(world - 1, LATE), Barrier(group))
        unlike: list[Reduction] = [each for each in reductions(promised) if each not in ("sum", "mean")]
        rows = replace(tensor, seed=7, shape=(tensor.shape[0] * len(rest),))
        others["reduce_scatter"] += (ReduceScatter(rows, unlike[0] if unlike else started.reduction, rest),)
    if world > 1:
        others["send_recv"] = (SendRecv(replace(tensor, seed=6), ((0, world - 1), (world - 1, 0))),)
    offered = [(started, *each) for kind, each in others.items() if kind in promised.collectives.operations]
    if world > 2 and promised.has(CallForm.SUBGROUPS):
        inside = replace(started, group=group)
        kinds = [
            kind for kind in others if kind in promised.collectives.operations and kind not in ("barrier", "all_gather")
        ]
        offered += [(inside, *others[kind]) for kind in kinds]
    return [Job(world, (*each, Wait(0))) for each in offered]


@st.composite
def under_way(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """Two to five asynchronous all-reduces, all started before the first wait(); some with a late rank."""
    count = draw(choice((2, 3, 5)))
    order: Order = draw(st.sampled_from(ORDERS))
    started = [draw(all_reduces(world_size, capabilities, wait=False)) for _ in range(count)]
    late = draw(choice((None, None, None, *range(world_size))))
    return _under_way(world_size, started, order, late)


def _under_way(world_size: int, started: Sequence[AllReduce], order: Order, late: int | None = None) -> Job:
    first: list[Operation] = [] if late is None else [Sleep(late, LATE / 5)]
    positions = range(len(first), len(first) + len(started))
    waited = {"forwards": positions, "backwards": positions[::-1], "odd first": (*positions[1::2], *positions[::2])}
    return Job(world_size, (*first, *started, *map(Wait, waited[order])))


def _reduction(
    promised: Capabilities,
    reduction: Reduction,
    group: tuple[int, ...] | None,
    world_size: int,
    seed: int = 0,
    size: int = 4,
    *,
    wait: bool = True,
) -> AllReduce:
    """An exact all-reduce of `size` elements."""
    dtype = _usual_dtype(promised)
    members = world_size if group is None else len(group)
    return AllReduce(exact_tensor((size,), dtype, reduction, members, seed), reduction, group, wait)


def _usual_dtype(promised: Capabilities) -> str:
    """A floating dtype, if one is promised."""
    return next(iter(dtypes(promised, floats=True)), dtypes(promised)[0])
