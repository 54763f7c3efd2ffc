"""All-reduce in place, which training engines use for their buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import collectives as causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Determinism, needs
from ddpcheck.hypotheses.collectives.circumstances import copy_reduced
from ddpcheck.job import AllReduce, Job, Layout, TensorSpec
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..strategies_collectives import dtypes, exact_tensor, fitting_reductions, usual_reduction
from .all_reduce import PAST_64_KIB
from .call_forms import SIZES
from .comparison import results_hold, same_bits_everywhere
from .names import named

if TYPE_CHECKING:
    from ddpcheck.session import Session

LARGE = ((1000, 7), (521, 521), (3, 262_144))
"""Past 16 KiB, and in float32 past 1 MiB and 3 MiB; nothing divides the first two."""


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.in_place)
def check_all_reduce_in_place_is_exact(session: Session) -> None:
    """All-reduce in place is as exact as into a new array, for every size, shape, dtype and reduction, in groups, and beside
    other calls.

    The array may be NumPy's own or a part of an array from empty(), whose memory stays in use while any part of it is.
    """
    world, promised = session.world_size, session.capabilities
    drawn = []
    for dtype in dtypes(promised):
        usual = usual_reduction(promised, dtype)
        sizes = SIZES if dtype == "float32" else SIZES[::5]
        shapes = [(), (0,), *((size,) for size in sizes), *(LARGE if dtype == "float32" else LARGE[:1])]
        reduced = [
            AllReduce(exact_tensor(shape, dtype, usual, world, seed), usual, in_place=True)
            for seed, shape in enumerate(shapes)
        ]
        reduced += [
            AllReduce(exact_tensor(shape, dtype, each, world, 3), each, in_place=place)
            for each in fitting_reductions(promised, dtype)
            for shape, place in (((5, 9), True), ((5, 9), False), ((1,), True), ((), True), (PAST_64_KIB, True))
            if shape != PAST_64_KIB or dtype == "float32"
        ]
        if promised.has(CallForm.SUBGROUPS) and world > 1:
            rest = tuple(range(1, world))
            reduced += [
                AllReduce(exact_tensor(shape, dtype, each, len(rest), 4), each, rest, in_place=True)
                for each in fitting_reductions(promised, dtype)
                for shape in ((70,), *[PAST_64_KIB] * (each == usual))
            ]
        drawn.append(Job(world, tuple(reduced)))
    usual_dtype = dtypes(promised)[0]
    reduction = usual_reduction(promised, usual_dtype)
    for shape in ((5, 9), PAST_64_KIB):
        elsewhere = [exact_tensor(shape, usual_dtype, reduction, world, seed, "offset") for seed in range(3)]
        elsewhere.append(exact_tensor(shape, usual_dtype, reduction, world, 3, "mixed"))
        drawn.append(Job(world, tuple(AllReduce(tensor, reduction, in_place=True) for tensor in elsewhere)))
    for_each(session, drawn, _in_their_place)


def _in_their_place(job: Job, trace: Trace) -> None:
    """A judge: results are right, only in the right place, and unchanged until the end."""
    for position, operation in enumerate(job.operations):
        for rank in trace.ranks if trace.completed else ():
            seen = rank.values(position)
            what = f"{named(operation, position)} on rank {rank.rank}"
            assertions.that(
                not seen.get("beside_changed"),
                f"{what}: the elements next to the array were changed, but should stay as they were",
                causes.WRITES_AT_START_OF_BASE(),
            )
            assertions.that(
                not getattr(operation, "in_place", False) or not seen.get("overwritten_later"),
                f"{what}: the array was overwritten by a later operation, but is the caller's as long as it is in use",
                causes.EMPTY_GIVEN_TWICE(),
            )
    results_hold(job, trace)


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.in_place, needs.ranks(2))
def check_strided_arrays_are_reduced_in_place_or_refused(session: Session) -> None:
    """All-reduce in place of a non-contiguous array gives the exact result in that array, or raises an error on every rank."""
    world, promised = session.world_size, session.capabilities
    dtype = dtypes(promised)[0]
    reduction = usual_reduction(promised, dtype)
    layouts: tuple[Layout, ...] = ("F", "strided", "columns", "reversed")
    drawn = [
        Job(world, (AllReduce(exact_tensor((5, 9), dtype, reduction, world, 3, layout), reduction, in_place=True),))
        for layout in layouts
    ]
    for_each(session, drawn, _reduced_or_refused)


def _reduced_or_refused(job: Job, trace: Trace) -> None:
    if len(trace.raised) == len(trace.ranks):
        return
    try:
        results_hold(job, trace)
    except Finding as finding:
        sure = finding.diagnosis.causes
        raise finding.blaming(copy_reduced(sure), sure) from None


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.collectives.in_place,
    needs.world.determinism(Determinism.BETWEEN_RANKS),
    needs.ranks(2),
)
def check_all_reduce_in_place_is_bitwise_equal(session: Session) -> None:
    """Real values reduced in place have the same bits on every rank, for every size."""
    world, promised = session.world_size, session.capabilities
    dtype = next(iter(dtypes(promised, floats=True)), dtypes(promised)[0])
    usual = usual_reduction(promised, dtype)
    reduced = tuple(
        AllReduce(TensorSpec(shape, dtype, "real", seed), usual, in_place=True)
        for seed, shape in enumerate([(1,), (100,), (3001,), *LARGE])
    )
    for_each(session, [Job(world, reduced)], same_bits_everywhere)
