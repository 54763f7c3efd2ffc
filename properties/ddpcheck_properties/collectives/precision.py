"""Sums and means at the limits of a dtype: float16 sums computed in a wider dtype, and tiny values that must not vanish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.collectives.reductions import of_tiny_values, overflowed
from ddpcheck.job import AllReduce, Job, TensorSpec
from ddpcheck.numerics import gamma, unit_roundoff
from ddpcheck.oracle.collectives import finished, wants
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..judges import with_causes
from ..strategies_collectives import dtypes
from .call_forms import other_ways
from .comparison import results_hold
from .names import named

if TYPE_CHECKING:
    from ddpcheck.session import Session

LENGTHS = (300, 33_000)
"""Enough elements for one rounding too many to show, in a small array and in one past 64 KiB."""
_SPREAD = 3
"""Ratio of the largest values to the smallest."""
_ADDED: tuple[Literal["sum"], Literal["mean"]] = ("sum", "mean")


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.collectives.dtypes("float16"),
    needs.collectives.rounds_float16_once,
    needs.ranks(3),
)
def check_float16_is_rounded_once(session: Session) -> None:
    """Sums and means of float16 differ from the exact result by at most one rounding, however many ranks there are."""
    made: list[AllReduce] = []
    for each in _ADDED:
        if each in session.capabilities.collectives.reductions:
            made += [AllReduce(TensorSpec((size,), "float16", "real", 3), each) for size in LENGTHS]
    for_each(session, [Job(session.world_size, (one,)) for one in made], _rounded_once)


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.collectives.dtypes("float16"),
    needs.collectives.rounds_float16_once,
    needs.ranks(2),
)
def check_float16_intermediate_sums_do_not_overflow(session: Session) -> None:
    """A float16 sum or mean that fits float16 is correct even if a partial sum, or the sum before division, overflows. This
    also holds in a group, asynchronously, and in reduce-scatter.
    """
    world, promised = session.world_size, session.capabilities
    largest = int(np.finfo("float16").max) // _SPREAD
    step = world * 2 ** int(np.log2(largest // world))  # few bits, which a division keeps
    drawn: list[Job] = []
    for each in _ADDED:
        if each in promised.collectives.reductions:
            short, long = (
                TensorSpec((size * world,), "float16", seed=5, spread=_SPREAD, step=step) for size in LENGTHS
            )
            drawn += [Job(world, (AllReduce(tensor, each),)) for tensor in (short, long)]
            drawn += other_ways(world, promised, short, each)
    for_each(session, drawn, with_causes(results_hold, _causes_of_overflow))


@law("collectives", needs.collectives.operations("all_reduce"), needs.collectives.keeps_tiny_values, needs.ranks(2))
def check_smallest_values_are_not_flushed_to_zero(session: Session) -> None:
    """Sums of values near the smallest of a dtype are exact. A mean is off by at most half of the smallest value, because
    the sum is divided.
    """
    made = [
        AllReduce(TensorSpec((size,), dtype, "tiny", 4), each)
        for dtype in dtypes(session.capabilities, floats=True)
        for size in LENGTHS
        for each in _ADDED[::-1]
        if each in session.capabilities.collectives.reductions
    ]
    for_each(session, [Job(session.world_size, (one,)) for one in made], _tiny_kept)


def _causes_of_overflow(job: Job, trace: Trace, _: Finding) -> Given:
    """Of an infinity or a NaN in place of a number."""
    if not trace.completed:
        return None
    of_ranks = (
        overflowed(collective, trace.ranks[rank].values(position)["result"], want.value)
        for position, collective, members in finished(job)
        for rank, want in wants(collective, members).items()
    )
    return next(filter(None, of_ranks), None)


def _rounded_once(job: Job, trace: Trace) -> None:
    """One rounding to float16, u |s| or half of the smallest number; W + 1 to float32 or wider before, gamma sum|terms|."""
    assertions.completed(trace)
    for position, collective, members in finished(job):
        stack = np.stack([collective.tensor.on(rank) for rank in members]).astype(np.float64)
        divisor = len(members) if isinstance(collective, AllReduce) and collective.reduction == "mean" else 1
        value, terms = stack.sum(axis=0) / divisor, np.abs(stack).sum(axis=0) / divisor
        bound = np.abs(value) * unit_roundoff("float16") * (1 + 2.0**-8) + 2.0**-25
        bound += terms * gamma(len(members) + 1, "float32")
        for rank in members:
            got = trace.ranks[rank].values(position)["result"]
            assertions.within(got, value, bound, f"{named(collective, position)}: result", rank)


def _tiny_kept(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for position, collective, members in finished(job):
        smallest = np.finfo(collective.tensor.dtype).smallest_subnormal.astype(np.float64)
        stack = np.stack([collective.tensor.on(rank) / smallest for rank in members])
        divisor = len(members) if isinstance(collective, AllReduce) and collective.reduction == "mean" else 1
        value = stack.sum(axis=0) / divisor
        evidence = Evidence(divisor, alternatives=tuple(of_tiny_values(stack, divisor)))
        what = f"{named(collective, position)}: result, in units of the smallest {collective.tensor.dtype},"
        for rank in members:
            got = trace.ranks[rank].values(position)["result"] / smallest
            assertions.within(
                got, value, np.full(value.shape, 0.5 + 2.0**-8 if divisor > 1 else 0.0), what, rank, evidence
            )
