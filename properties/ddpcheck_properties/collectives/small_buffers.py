"""Messages larger than any buffer: a collective in which every rank sends before any receives then hangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.job import AllReduce, Job, MeasureCollective, Operation, SmallBuffers, TensorSpec, Wait
from ddpcheck.operations.timing import Collective
from ddpcheck.trace import Trace

from ..drawing import for_each, has_time_for_long_jobs
from ..strategies_collectives import usual_dtype, usual_reduction

if TYPE_CHECKING:
    from ddpcheck.session import Session

NAMES: tuple[Collective, ...] = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv")
_SUMS = {"all_reduce", "reduce_scatter"}
ROOM = 1 << 20
"""Elements, 4 or 8 MiB: a third of it exceeds the shrunk buffers of two ranks."""
LARGER = (1 << 22) + 6
"""Elements, beyond 16 or 32 MiB: more than most buffers in memory hold, with a remainder, but not too long for a slow
implementation.
"""
LARGEST = 1 << 24


@law("collectives", needs.collectives, needs.ranks(2, most=3))
def check_collectives_need_no_room_in_socket_buffers(session: Session) -> None:
    """Every collective, and send with recv, completes correctly on arrays larger than any buffer of the operating system. A
    rank that sends before it receives waits for ever there.

    Arrays have 4 MiB over shrunk buffers and 16 MiB otherwise, or 64 MiB in long profiles.
    """
    world, promised = session.world_size, session.capabilities
    dtype = usual_dtype(promised)
    opened = ways(promised, dtype, 4 * world)  # includes connections that may exist only now
    large = ways(promised, dtype, ROOM // world * world)
    operations: list[Operation] = [*opened, SmallBuffers(), *large]
    if promised.has(CallForm.ASYNCHRONOUS):
        tensor = TensorSpec((ROOM,), dtype, "powers")
        operations += [AllReduce(tensor, usual_reduction(promised, dtype), wait=False), Wait(len(operations))]
    operations.append(SmallBuffers(on=False))
    if world == 2:
        largest = has_time_for_long_jobs(session)
        operations += ways(promised, dtype, LARGEST if largest else LARGER)[: None if largest else 1]
    for_each(session, [Job(world, tuple(operations))] if large else (), none_wrong)


def ways(promised: Capabilities, dtype: str, count: int) -> Sequence[MeasureCollective]:
    """Each promised collective, once."""
    offered = promised.collectives
    chosen: list[Collective] = [
        name for name in NAMES if name in offered.operations and (name not in _SUMS or "sum" in offered.reductions)
    ]
    return [MeasureCollective(name, count, dtype, warmups=0, iterations=0) for name in chosen]


def none_wrong(job: Job, trace: Trace) -> None:
    """A judge: no rank found a wrong element."""
    assertions.completed(trace)
    for position, operation in enumerate(job.operations):
        if isinstance(operation, MeasureCollective):
            for rank, wrong in enumerate(trace.values(position, "wrong")):
                assertions.that(
                    not wrong,
                    f"{operation.collective} of {operation.count:,} elements on rank {rank}: {wrong:,} elements are wrong",
                )
