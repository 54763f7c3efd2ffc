"""All-reduce gives the exact reduction on every rank, for every dtype, shape and memory layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Broadcast,
    Job,
    Layout,
    Operation,
    ReduceScatter,
    SendRecv,
    TensorSpec,
)

from ..drawing import for_all, for_each, has_time_for_long_jobs
from ..strategies_collectives import (
    EVERY_LAYOUT,
    Reduction,
    Shape,
    all_reduces,
    collectives,
    dtypes,
    exact_tensor,
    extremes,
    fitting_reductions,
    floating,
    jobs,
    reductions,
    shapes,
    usual_dtype,
    usual_reduction,
)
from .call_forms import other_ways
from .comparison import arguments_are_left_alone, results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

FLOATS = needs.floats
PAST_64_KIB, PAST_1_MIB, PAST_4_MIB, PAST_16_MIB = (127, 131), (521, 521), (1031, 1033), (2053, 2063)
"""Shapes whose float32 arrays are larger than usual buffers of sockets and messages; no chunk size divides them."""
A_MIB = (1 << 18,)
"""One MiB of float32, which fills chunks of any size to the last byte."""
PERMUTED = (2, 3, 4)
"""A shape with a memory layout that is neither C nor F."""
POOL = 16
"""More calls than a pool of buffers holds, so that its first buffer is used again."""


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("sum"), level=Level.BASIC)
def check_all_reduce_sums_exactly(session: Session) -> None:
    """All-reduce gives every rank the exact sum of all ranks' arrays, for every shape, dtype and memory layout."""
    _exact(session, "sum")


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.collectives.reductions("mean"),
    FLOATS,
    level=Level.BASIC,
)
def check_all_reduce_gives_the_exact_mean(session: Session) -> None:
    """All-reduce gives every rank the exact mean when values are multiples of the world size."""
    _exact(session, "mean")


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("min"), level=Level.BASIC)
def check_all_reduce_gives_the_minimum(session: Session) -> None:
    """All-reduce gives every rank the element-wise minimum."""
    _exact(session, "min")


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("max"), level=Level.BASIC)
def check_all_reduce_gives_the_maximum(session: Session) -> None:
    """All-reduce gives every rank the element-wise maximum."""
    _exact(session, "max")


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("prod"), level=Level.BASIC)
def check_all_reduce_multiplies_exactly(session: Session) -> None:
    """All-reduce gives every rank the exact product."""
    _exact(session, "prod")


@law("collectives", needs.collectives.operations("all_reduce"))
def check_all_reduce_keeps_the_precision_of_its_dtype(session: Session) -> None:
    """All-reduce computes and sends every promised dtype in full precision, never in a narrower dtype."""
    jobs_of_dtypes = [
        Job(
            session.world_size,
            tuple(
                AllReduce(exact_tensor(shape, dtype, reduction, session.world_size), reduction)
                for reduction in fitting_reductions(session.capabilities, dtype)
                for shape in ((5,), (), (1,))
            ),
        )
        for dtype in dtypes(session.capabilities)
    ]
    for_each(session, jobs_of_dtypes, results_hold)


@law("collectives", needs.collectives.operations("all_reduce"), level=Level.BASIC)
def check_all_reduce_of_large_tensors_is_exact(session: Session) -> None:
    """All-reduce is exact for tensors larger than 64 KiB, 1 MiB and 4 MiB, for each reduction and memory layout, with small
    tensors in between.
    """
    world, promised = session.world_size, session.capabilities
    offered = dtypes(promised, floats=True) or dtypes(promised)
    among = fitting_reductions(promised, offered[0])
    small = AllReduce(exact_tensor((1,), offered[0], among[0], world, 9), among[0])
    integers = [dtype for dtype in dtypes(promised) if not floating(dtype)]
    exact = fitting_reductions(promised, integers[0]) if integers else []
    drawn = [
        Job(world, (AllReduce(exact_tensor(PAST_64_KIB, dtype, each, world, 8), each),))
        for dtype, each in zip(integers, exact * len(integers), strict=False)
    ]
    # it takes long, and buffers are cut at a size, not at a world size
    largest = PAST_4_MIB if world == 2 else PAST_1_MIB
    cases: list[tuple[Shape, Layout]] = [(PAST_1_MIB, "C"), (A_MIB, "C"), ((math.prod(largest),), "reversed")]
    for number, (shape, layout) in enumerate(cases):
        tensor = exact_tensor(shape, offered[number % len(offered)], among[0], world, number, layout)
        drawn.append(Job(world, (AllReduce(tensor, among[0]), small)))
    for number, layout in enumerate(EVERY_LAYOUT):
        dtype = offered[number % len(offered)]
        by_each = (AllReduce(exact_tensor(PAST_64_KIB, dtype, each, world, number, layout), each) for each in among)
        drawn.append(Job(world, (*by_each, small)))
    if world == 2 and has_time_for_long_jobs(session):  # three bytes cannot count its own
        drawn.append(
            Job(world, (AllReduce(exact_tensor(PAST_16_MIB, offered[-1], among[0], world, 5), among[0]), small))
        )
    for_each(session, drawn, results_hold)


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.reductions("sum"), FLOATS)
def check_nan_and_infinity_propagate_in_sums(session: Session) -> None:
    """A NaN on any rank makes sum and mean NaN. Infinities stay infinite, opposite infinities give NaN, and a sum that
    overflows gives an infinity.
    """
    _not_finite(session, tuple(each for each in reductions(session.capabilities) if each in ("sum", "mean")))
    if session.world_size == 2:  # with more terms, overflow depends on the order of additions
        steps = {each: 2 ** (int(np.finfo(each).maxexp) - 2) for each in dtypes(session.capabilities, floats=True)}
        large = [TensorSpec((96,), dtype, step=step) for dtype, step in steps.items()]
        drawn = [Job(2, tuple(AllReduce(tensor) for tensor in large))]
        drawn += [job for tensor in large for job in other_ways(2, session.capabilities, tensor, "sum")]
        for_each(session, drawn, results_hold)


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.collectives.reductions("min"),
    needs.collectives.reductions("max"),
    needs.collectives.propagates_nan,
    FLOATS,
)
def check_nan_propagates_in_minimum_and_maximum(session: Session) -> None:
    """A NaN on any rank makes minimum and maximum NaN, whether the rank is first, last or between. A plain comparison loses
    it.
    """
    _not_finite(session, ("min", "max"))


@law("collectives", needs.collectives, level=Level.BASIC)
def check_collectives_do_not_change_their_arguments(session: Session) -> None:
    """No collective changes its argument. Every result is a new array, which no later collective overwrites.

    This holds for arrays past 64 KiB, after more calls than a pool of buffers may hold, and in groups of one rank.
    """
    world, promised = session.world_size, session.capabilities
    dtype = dtypes(promised)[0]
    reduction = usual_reduction(promised, dtype)
    examples: list[Job] = []
    for shape, calls in (((2 * world,), POOL), ((PAST_64_KIB[0] * world, PAST_64_KIB[1]), 1)):
        first, second = (exact_tensor(shape, dtype, reduction, world, seed) for seed in (0, 1))
        made: dict[str, Callable[[TensorSpec], Operation]] = {
            "all_reduce": lambda tensor: AllReduce(tensor, reduction),
            "broadcast": Broadcast,
            "all_gather": AllGather,
            "reduce_scatter": lambda tensor: ReduceScatter(tensor, reduction),
        }
        if world > 1:
            made["send_recv"] = lambda tensor: SendRecv(tensor, ((0, 1),))
        examples += [
            Job(world, (one(first), *(one(second),) * calls))
            for name, one in made.items()
            if name in promised.collectives.operations
        ]
        several: list[type[AllReduce] | type[ReduceScatter]] = [AllReduce, ReduceScatter]
        examples += [
            Job(world, tuple(kind(first, each) for each in fitting_reductions(promised, dtype)))
            for kind in several
            if kind.kind in promised.collectives.operations and promised.collectives.reductions
        ]
    if promised.has(CallForm.SUBGROUPS):
        examples += _alone(world, promised)
    drawn = jobs(world, collectives(world, promised), 2, 3)
    for_all(session, drawn, arguments_are_left_alone, examples=examples, share=0.5)


def _alone(world_size: int, promised: Capabilities) -> list[Job]:
    """Every collective in a group of one rank, where some implementations return their argument."""
    dtype = dtypes(promised)[0]
    reduction = usual_reduction(promised, dtype)
    tensor = exact_tensor((4,), dtype, reduction, 1)
    made = (AllReduce(tensor, reduction, (0,)), Broadcast(tensor, 0, (0,)), AllGather(tensor, (0,)))
    scattered = ReduceScatter(tensor, reduction, (0,))
    return [Job(world_size, (one,)) for one in (*made, scattered) if one.kind in promised.collectives.operations]


def _exact(session: Session, reduction: Reduction) -> None:
    world, promised = session.world_size, session.capabilities
    offered = dtypes(promised, floats=reduction == "mean")
    # the odd shapes come after other tensors with their dtype
    odd_last = sorted(shapes(world), key=lambda shape: math.prod(shape) == 0 or not shape)
    examples = [
        Job(
            world,
            tuple(
                AllReduce(exact_tensor(shape, offered[seed % len(offered)], reduction, world, seed), reduction)
                for seed, shape in enumerate(odd_last)
            ),
        ),
        Job(
            world,
            tuple(
                AllReduce(exact_tensor((3, 2), dtype, reduction, world, 7, layout), reduction)
                for dtype in offered
                for layout in EVERY_LAYOUT
            ),
        ),
        Job(
            world,
            tuple(
                AllReduce(exact_tensor(PERMUTED, each, reduction, world, 8, "permuted"), reduction) for each in offered
            ),
        ),
    ]
    examples.append(_whole_chunks(world, offered[0], reduction))
    ends = [tensor for tensor, each in extremes(promised, 40) if each == reduction]
    examples += [Job(world, tuple(AllReduce(tensor, reduction) for tensor in ends))] * bool(ends)
    if reduction == "prod" and (integers := [dtype for dtype in offered if not floating(dtype)]):
        # truncated to integers, some of which are zeros
        zeros = (TensorSpec((40,), dtype, "real", 5) for dtype in integers)
        examples.append(Job(world, tuple(AllReduce(tensor, reduction) for tensor in zeros)))
    if reduction == "prod":
        strange = (TensorSpec((96,), dtype, "nonfinite") for dtype in offered if floating(dtype))
        examples.append(Job(world, tuple(AllReduce(tensor, reduction) for tensor in strange)))
    drawn = jobs(world, all_reduces(world, promised, among=(reduction,)))
    scalar = AllReduce(exact_tensor((), offered[0], reduction, world), reduction)
    alone = [*_one_by_one(examples[0]), Job(world, (scalar,))]
    for_all(session, drawn, results_hold, examples=[*alone, *examples], share=0.5)


def _whole_chunks(world_size: int, dtype: str, reduction: Reduction) -> Job:
    """Sizes that fill chunks of 4 KiB and 64 KiB exactly, and sizes one element smaller and larger."""
    sizes = [size + more for size in (1024, 16384) for more in (-1, 0, 1)]
    made = (exact_tensor((size,), dtype, reduction, world_size, size) for size in sizes)
    return Job(world_size, tuple(AllReduce(tensor, reduction) for tensor in made))


def _one_by_one(job: Job) -> Iterable[Job]:
    """Small tensors one at a time, so that the Finding has a Job of one operation."""
    return [Job(job.world_size, (operation,)) for operation in job.operations[:5]]


_SHAPED: tuple[tuple[tuple[int, ...], Layout], ...] = (
    ((12, 10), "C"),
    ((12, 10), "strided"),
    ((4, 5, 6), "F"),
    ((120,), "reversed"),
    ((4099,), "C"),
)


def _not_finite(session: Session, among: tuple[Reduction, ...]) -> None:
    world = session.world_size
    offered = dtypes(session.capabilities, floats=True)
    # 96 elements: at world sizes 1 to 5 every rank is the only one with a NaN somewhere
    examples = [
        Job(world, tuple(AllReduce(TensorSpec((96,), dtype, "nonfinite", step=world), reduction) for dtype in offered))
        for reduction in among
    ]
    usual_float = usual_dtype(session.capabilities, floats=True)
    tensor = TensorSpec((120,), usual_float, "nonfinite", step=world * max(1, world - 1))
    examples += [job for each in among for job in other_ways(world, session.capabilities, tensor, each)]
    shaped = [TensorSpec(shape, usual_float, "nonfinite", 3, layout, step=world) for shape, layout in _SHAPED]
    everyone = tuple(range(world)) if session.capabilities.has(CallForm.SUBGROUPS) else None
    examples += [
        Job(world, (*(AllReduce(each, reduction) for each in shaped), AllReduce(tensor, reduction, everyone)))
        for reduction in among
    ]
    large = [PAST_64_KIB, *[PAST_1_MIB] * (world == 2), *[PAST_16_MIB] * (world == 2 and session.deep)]
    every = [TensorSpec(shape, usual_float, "nonfinite", 4, step=world) for shape in large]
    examples += [Job(world, tuple(AllReduce(each, reduction) for each in every)) for reduction in among]
    # some without a NaN; arrays without a dimension may have a path of their own
    few = [TensorSpec(one, usual_float, "nonfinite", seed, step=world) for one in ((2,), ()) for seed in range(12)]
    examples += [Job(world, tuple(AllReduce(tensor, each) for tensor in few)) for each in among]
    for_each(session, examples, results_hold)
