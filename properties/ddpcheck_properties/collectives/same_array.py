"""One array is passed to several calls, in turn and at once; no call may change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck.causes import collectives as causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
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
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..judges import finding_on
from ..strategies_collectives import Reduction, exact_tensor, fitting_reductions
from .call_forms import large_rows, usual
from .comparison import results_hold_and_arguments_stay

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("collectives", needs.collectives)
def check_one_array_can_be_passed_to_several_calls(session: Session) -> None:
    """One array may be passed to any collectives in turn and to several pending ones. Each call has its own result, which
    does not change later. This holds for small and large arrays, with each reduction, and in groups.
    """
    world, promised = session.world_size, session.capabilities
    dtype, _ = usual(promised)
    among = fitting_reductions(promised, dtype)
    if "prod" in among:  # a product would overflow
        among.remove("prod")
    divides = world * max(1, world - 1)  # divisible for the group, too
    small, large = (
        exact_tensor(shape, dtype, "mean", divides, 2, "shared", wide=False)
        for shape in ((2 * world,), large_rows(world))
    )
    groups = [None, tuple(range(1, world))] if promised.has(CallForm.SUBGROUPS) and world > 2 else [None]
    reduced, of_large = (
        [AllReduce(tensor, each, group) for each in some for group in within]
        * ("all_reduce" in promised.collectives.operations)
        for tensor, some, within in ((small, among, groups), (large, among[-2:], groups[:1]))
    )
    others = _others(session, small, among)
    in_turn = [*reduced, *others, *reduced[::-1], *others]
    drawn = [Job(world, tuple(each)) for each in (in_turn, [*of_large, *of_large[::-1]]) if each]
    if promised.has(CallForm.ASYNCHRONOUS) and reduced:
        drawn += [_at_once(world, *each) for each in ((reduced, others, 1), (reduced, [], -1), (of_large, [], -1))]
    try:
        for_each(session, drawn, results_hold_and_arguments_stay)
    except Finding as finding:
        job = finding.job
        if job is None or not _right_with_an_array_for_each(session, job):
            raise
        raise finding.blaming(causes.CACHED_BY_ARRAY(), *finding.diagnosis.causes) from None


def _others(session: Session, tensor: TensorSpec, among: Sequence[Reduction]) -> list[Operation]:
    """The other promised collectives."""
    world, promised = session.world_size, session.capabilities
    others: list[Operation] = [Broadcast(tensor, root) for root in {0, world - 1}]
    others += [AllGather(tensor), *(ReduceScatter(tensor, each) for each in among)]
    others += [SendRecv(tensor, ((0, world - 1), (world - 1, 0)))] * (world > 1)
    return [each for each in others if each.kind in promised.collectives.operations]


def _at_once(world: int, reduced: list[AllReduce], others: list[Operation], order: int) -> Job:
    """Two pending calls of each kind, with the others in between; waited for in the order of the calls, or in reverse."""
    begun = [replace(each, wait=False) for each in (*reduced, *reduced)]
    waits = [Wait(position) for position in range(len(begun))]
    return Job(world, (*begun, *reduced, *others, *waits[::order]))


def _right_with_an_array_for_each(session: Session, job: Job) -> bool:
    apart = replace(job, operations=tuple(map(_with_its_own, job.operations)))
    return finding_on(session, apart, results_hold_and_arguments_stay) is None


def _with_its_own(operation: Operation) -> Operation:
    if isinstance(operation, AllReduce | Broadcast | AllGather | ReduceScatter | SendRecv):
        return replace(operation, tensor=replace(operation.tensor, layout="C"))
    return operation
