"""Compressible arrays are mostly zeros, as in an embedding's gradient, or mostly one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.collectives.circumstances import FailedJob, path_by_content, shortened_by_content
from ddpcheck.job import AllGather, AllReduce, Broadcast, Job, Operation, ReduceScatter, SendRecv, TensorSpec, Wait
from ddpcheck.seeded_values import Kind
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each, takes_its_time
from ..strategies_collectives import Reduction, dtypes, exact_tensor, fitting_reductions
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

Make = Callable[[int, int], Operation]
"""An operation on an array of so many rows for each rank, the number of it that says its values, dtype and reduction."""

HOLDING: tuple[Kind, ...] = ("sparse", "even", "patchy")
ROWS = (1, 13, 100)
"""Of three elements for each rank: most are wholly alike; some are not; a byte does not count them."""
PAST_64_KIB, PAST_64_KI = 5500, 22_000
"""Of so many rows float32 needs more than that, and two bytes do not count the elements."""
SEEDS = 20
"""So many arrays are all-reduced, and half as many go each other way: float32 by turns with other dtypes and reductions."""
UNLIKE = 2
"""A seed with which the patchy arrays of rank 0 and rank 1 are of different makes."""


@law("collectives", needs.collectives)
def check_collectives_are_correct_for_compressible_arrays(session: Session) -> None:
    """Collectives are correct for arrays that are mostly zeros or mostly one number, on all ranks or on some. Compression
    loses nothing, and no rank takes a different path from the rest.
    """
    drawn: list[Job] = []
    for holding in HOLDING:
        ways = list(_ways(session, holding))
        for number, make in enumerate(ways):
            seeds = range(SEEDS // 2 if number else SEEDS)
            drawn += [_job(session, [make(ROWS[seed % len(ROWS)], seed) for seed in seeds])]
        # the largest take long: all-reduce, and one way more at each world size
        chosen = (
            ways if takes_its_time(session) else ways[:1] + ways[1 + session.world_size % max(1, len(ways) - 1) :][:1]
        )
        drawn += [_job(session, [make(PAST_64_KIB, UNLIKE)]) for make in chosen]
        drawn += [_job(session, [make(PAST_64_KI, UNLIKE)]) for make in chosen if holding == "sparse"]
    for_each(session, drawn, _whatever_they_hold)


def _job(session: Session, operations: list[Operation]) -> Job:
    """A Job of these operations; each asynchronous one is waited for at once."""
    made: list[Operation] = []
    for each in operations:
        made.append(each)
        if isinstance(each, AllReduce) and not each.wait:
            made.append(Wait(len(made) - 1))
    return Job(session.world_size, tuple(made))


def _ways(session: Session, holding: Kind) -> list[Make]:
    """The promised ways to reduce and move arrays; all-reduce is the first."""
    world, promised = session.world_size, session.capabilities
    offered = sorted(dtypes(promised), key=lambda dtype: (dtype != "float32", dtype != "int64", dtype))
    everybody, last = tuple(range(world)), world - 1

    def dtype_of(number: int) -> str:
        return offered[number % 2 * (number // 2 + number // 8) % len(offered)]

    def moved(rows: int, number: int) -> TensorSpec:
        return TensorSpec((rows * world, 3), dtype_of(number), holding, number)

    def reduced(rows: int, number: int, members: int = world) -> tuple[TensorSpec, Reduction]:
        dtype = dtype_of(number)
        among: list[Reduction] = fitting_reductions(promised, dtype) or ["sum"]
        reduction = among[number % 2 * (number // 2 + 1) % len(among)]
        return replace(exact_tensor((rows * world, 3), dtype, reduction, members, number), values=holding), reduction

    ways: dict[str, Make] = {
        "all_reduce": lambda rows, number: AllReduce(*reduced(rows, number)),
        "asynchronous": lambda rows, number: AllReduce(*reduced(rows, number), wait=False),
        "group": lambda rows, number: AllReduce(*reduced(rows, number, world - 1), everybody[1:]),
        "reduce_scatter": lambda rows, number: ReduceScatter(*reduced(rows, number)),
        "broadcast": lambda rows, number: Broadcast(moved(rows, number), number % world),
        "all_gather": lambda rows, number: AllGather(moved(rows, number)),
        "send_recv": lambda rows, number: SendRecv(moved(rows, number), ((last, 0), (0, last))),
    }
    reduces = "all_reduce" in promised.collectives.operations
    has = {*promised.collectives.operations, *["asynchronous"] * (reduces and promised.has(CallForm.ASYNCHRONOUS))}
    has |= {*["group"] * (reduces and promised.has(CallForm.SUBGROUPS) and world > 2)}
    return [make for name, make in ways.items() if name in has and (world > 1 or name != "send_recv")]


def _whatever_they_hold(job: Job, trace: Trace) -> None:
    """A judge: results_hold; a rank that hangs or fails may have taken another path than the others."""
    try:
        results_hold(job, trace)
    except Finding as finding:
        of = FailedJob(job, trace, finding.diagnosis.causes)
        raise finding.blaming(path_by_content(of), of.sure, shortened_by_content(of)) from None
