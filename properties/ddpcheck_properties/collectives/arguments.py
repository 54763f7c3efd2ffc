"""Arguments of collectives may be read-only arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, needs
from ddpcheck.hypotheses.collectives.circumstances import FailedJob, argument_must_be_writable
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Broadcast,
    Job,
    Operation,
    ReduceScatter,
    SendRecv,
    Wait,
)
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_each
from ..judges import with_causes
from ..strategies_collectives import exact_tensor
from .call_forms import large_rows, usual
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("collectives", needs.collectives)
def check_collectives_accept_read_only_arguments(session: Session) -> None:
    """Collectives accept read-only arrays, such as those of another framework: small or large, in a group, and asynchronously."""
    world, promised = session.world_size, session.capabilities
    dtype, reduction = usual(promised)
    made: list[Operation] = []
    for shape in ((2 * world,), large_rows(world)):
        tensor = exact_tensor(shape, dtype, reduction, world, 6, "read_only")
        made += [AllReduce(tensor, reduction), AllGather(tensor), ReduceScatter(tensor, reduction)]
        made += [Broadcast(tensor, root) for root in {0, world - 1}]
        made += [SendRecv(tensor, ((0, world - 1),))] * (world > 1)
        if promised.has(CallForm.SUBGROUPS):
            everyone = tuple(range(world))
            made += [AllReduce(tensor, reduction, everyone), Broadcast(tensor, world - 1, everyone)]
            made += [AllGather(tensor, everyone), ReduceScatter(tensor, reduction, everyone)]
    made = [one for one in made if one.kind in promised.collectives.operations]
    if promised.has(CallForm.ASYNCHRONOUS):
        tensor = exact_tensor((5,), dtype, reduction, world, 7, "read_only")
        made += [AllReduce(tensor, reduction, wait=False), Wait(len(made))]
    for_each(session, [Job(world, tuple(made))], with_causes(results_hold, _explain))


def _explain(job: Job, trace: Trace, finding: Finding) -> Given:
    """The read-only argument causes an error about writing."""
    of = FailedJob(job, trace, finding.diagnosis.causes)
    return argument_must_be_writable(of), of.sure
