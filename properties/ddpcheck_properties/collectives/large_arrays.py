"""Arrays of a megabyte, for which collectives often use another algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.job import AllGather, AllReduce, Broadcast, Job, Operation, ReduceScatter, SendRecv, TensorSpec, Wait

from ..drawing import for_each, has_time_for_long_jobs
from ..strategies_collectives import dtypes, exact_tensor, fitting_reductions, usual_dtype, usual_reduction
from .all_reduce import A_MIB
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

LARGE = (523, 521)
"""272,483 elements: past 64 Ki, past 1 MiB in float32, and the product of two odd factors."""


@law("collectives", needs.collectives)
def check_collectives_are_correct_for_large_arrays(session: Session) -> None:
    """Every collective is correct past 64 Ki elements and past 1 MiB. This holds for each reduction and dtype, in a group,
    from every root, and asynchronously.

    Each world size checks a third of the calls; long profiles check all of them.
    """
    world, promised = session.world_size, session.capabilities
    offered = dtypes(promised)
    usual = usual_dtype(promised)
    last = world - 1
    moved = TensorSpec(LARGE, usual, "special", 1)
    made: list[tuple[Operation, ...]] = [
        (AllReduce(exact_tensor(LARGE, usual, each, world, 2), each),) for each in fitting_reductions(promised, usual)
    ]
    made += [
        (
            AllReduce(
                exact_tensor(LARGE, each, usual_reduction(promised, each), world, 3), usual_reduction(promised, each)
            ),
        )
        for each in offered
        if each != usual
    ]
    scattered = next(iter(fitting_reductions(promised, usual)), None)
    if scattered:
        rows = (LARGE[0] * world, LARGE[1])  # so that a rank's block is as large as the arguments of the others
        made += [
            (ReduceScatter(exact_tensor(rows, usual, each, world, 4), each),)
            for each in fitting_reductions(promised, usual)[:2]
        ]
        if promised.has(CallForm.ASYNCHRONOUS):
            tensor = exact_tensor(LARGE, usual, scattered, world, 5, "strided")
            made.append((AllReduce(tensor, scattered, wait=False), Wait(0)))
        if promised.has(CallForm.SUBGROUPS) and world > 1:
            rest = tuple(range(1, world))
            made.append((AllReduce(exact_tensor(LARGE, usual, scattered, len(rest), 6), scattered, rest),))
    full = TensorSpec(A_MIB, usual, "special", 1)
    made += [tuple(Broadcast(full if root % 2 else moved, root) for root in range(world)), (AllGather(moved),)]
    made += [(SendRecv(moved, ((last, 0),)),)] * (world > 1)
    whole = [each for each in made if each[0].kind in promised.collectives.operations]
    chosen = whole if has_time_for_long_jobs(session) else whole[world % 3 :: 3]
    for_each(session, [Job(world, each) for each in chosen], results_hold)
