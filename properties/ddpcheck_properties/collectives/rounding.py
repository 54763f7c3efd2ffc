"""All-reduce of real values: within rounding, with equal bits on every rank, and reproducible."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ddpcheck import assertions
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Determinism, needs
from ddpcheck.job import AllReduce, Job, TensorSpec, Wait
from ddpcheck.oracle.collectives import finished
from ddpcheck.trace import Trace

from ..drawing import for_all
from ..strategies import choice
from ..strategies_collectives import dtypes, jobs, reductions, tensors, usual_dtype
from .all_reduce import FLOATS, PAST_64_KIB
from .call_forms import other_ways
from .comparison import results_hold, same_bits_everywhere
from .names import named

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("collectives", needs.collectives.operations("all_reduce"), FLOATS)
def check_all_reduce_of_real_values_is_within_rounding(session: Session) -> None:
    """For real values, the all-reduce error is at most the rounding in its dtype: |got - exact| <= gamma_m sum|terms|."""
    examples = _long_sums(session)
    for_all(session, jobs(session.world_size, _real(session)), results_hold, examples=examples, share=0.5)


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.world.determinism(Determinism.BETWEEN_RANKS),
    needs.ranks(2),
    FLOATS,
    level=Level.BASIC,
)
def check_all_reduce_is_bitwise_equal_on_all_ranks(session: Session) -> None:
    """All-reduce of real values gives every rank the same bits. Replicas that differ in the last bit drift apart."""
    examples = _long_sums(session)
    for_all(session, jobs(session.world_size, _real(session)), same_bits_everywhere, examples=examples, share=0.5)


@law(
    "collectives",
    needs.collectives.operations("all_reduce"),
    needs.world.determinism(Determinism.BETWEEN_CALLS),
    FLOATS,
)
def check_all_reduce_is_reproducible(session: Session) -> None:
    """Reducing the same arrays again gives the same bits."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        later = len(job.operations) // 2
        for position, collective, members in finished(job):
            if position < later:
                continue
            for rank in members:
                values = trace.ranks[rank].values
                what = f"{named(collective, position - later)}, run again: result"
                assertions.same_array(values(position)["result"], values(position - later)["result"], what, rank)

    drawn = jobs(session.world_size, _real(session)).map(_and_again)
    for_all(session, drawn, judge, examples=map(_and_again, _long_sums(session)), share=0.5)


def _and_again(job: Job) -> Job:
    """All operations of the Job, twice."""
    first = job.operations
    again = [replace(op, operation=len(first) + op.operation) if isinstance(op, Wait) else op for op in first]
    return replace(job, operations=(*first, *again))


def _real(session: Session) -> SearchStrategy[AllReduce]:
    """Sums, means and products of uniform values."""
    offered = tuple(reduction for reduction in reductions(session.capabilities) if reduction not in ("min", "max"))
    tensor = tensors(session.world_size, dtypes(session.capabilities, floats=True), "real")
    return st.builds(AllReduce, tensor, choice(offered))


def _long_sums(session: Session) -> list[Job]:
    """Enough elements for another order of additions to show in some; large arrays, and other ways to reduce them."""
    world, promised = session.world_size, session.capabilities
    offered, usual_float, reduction = (
        dtypes(promised, floats=True),
        usual_dtype(promised, floats=True),
        reductions(promised)[0],
    )
    shapes_of = [((64,), dtype) for dtype in offered] + [(PAST_64_KIB, usual_float)]
    made = [Job(world, (AllReduce(TensorSpec(shape, dtype, "real"), reduction),)) for shape, dtype in shapes_of]
    few, many = (TensorSpec((size,), usual_float, "real") for size in (60, 120))
    return made + other_ways(world, promised, few, reduction) + other_ways(world, promised, many, reduction)
