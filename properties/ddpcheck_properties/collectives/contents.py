"""Compressible arrays are mostly zeros, as in an embedding's gradient, or mostly one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.collectives.circumstances import FailedJob, path_by_content, shortened_by_content
from ddpcheck.job import AllGather, AllReduce, Broadcast, Job, Operation, ReduceScatter, SendRecv, TensorSpec, Wait
from ddpcheck.seeded_values import Kind
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each, has_time_for_long_jobs
from ..judges import with_causes
from ..strategies_collectives import Reduction, dtypes, exact_tensor, fitting_reductions
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

Make = Callable[[int, int], Operation]
"""Makes an operation on an array with this many rows per rank; the second number sets its values, dtype and
reduction.
"""

HOLDING: tuple[Kind, ...] = ("sparse", "even", "patchy")
ROWS = (1, 13, 100)
"""Rows of three elements per rank: most arrays have all equal elements, some do not; a byte cannot count 100 rows."""
PAST_64_KIB, PAST_64_KI = 5500, 22_000
"""Row counts beyond 64 KiB of float32, and beyond two bytes of elements."""
SEEDS = 20
"""The number of all-reduced arrays; other collectives get half as many, float32 in turn with other dtypes and
reductions.
"""
UNLIKE = 2
"""A seed for which the patchy arrays of rank 0 and rank 1 are of different kinds."""


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
        # the largest arrays take long: all-reduce, and one other collective at each world size
        chosen = (
            ways
            if has_time_for_long_jobs(session)
            else ways[:1] + ways[1 + session.world_size % max(1, len(ways) - 1) :][:1]
        )
        drawn += [_job(session, [make(PAST_64_KIB, UNLIKE)]) for make in chosen]
        drawn += [_job(session, [make(PAST_64_KI, UNLIKE)]) for make in chosen if holding == "sparse"]
    for_each(session, drawn, with_causes(results_hold, _explain))


def _job(session: Session, operations: list[Operation]) -> Job:
    """A Job of these operations; each asynchronous one is waited for at once."""
    made: list[Operation] = []
    for each in operations:
        made.append(each)
        if isinstance(each, AllReduce) and not each.wait:
            made.append(Wait(len(made) - 1))
    return Job(session.world_size, tuple(made))


def _ways(session: Session, holding: Kind) -> list[Make]:
    """The promised collectives, with all-reduce first."""
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


def _explain(job: Job, trace: Trace, finding: Finding) -> Given:
    """A rank that hangs or fails may take another code path than the others."""
    of = FailedJob(job, trace, finding.diagnosis.causes)
    return path_by_content(of), of.sure, shortened_by_content(of)
