"""What using an implementation must leave as it was: the settings of the process, which belong to the program, and what it
holds, or a long run comes to its end for want of memory, threads or descriptors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.footprint import GENERATORS, GRAIN, MANY, MEMORY, each_leaves
from ddpcheck.job import (
    Aggregate,
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Draw,
    Job,
    Operation,
    ReduceScatter,
    Rounds,
    Sample,
    Score,
    SendRecv,
    TensorSpec,
    Wait,
)
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .drawing import for_each
from .strategies_collectives import Reduction, dtypes, fitting_reductions, usual_reduction

if TYPE_CHECKING:
    from ddpcheck.session import Session

FILLING = 9
"""Jobs of three such rounds after which a record of the last thousand calls is full."""


@law("collectives", "facet:collectives", "world_size<=2")
def check_collectives_leave_the_process_as_it_was(session: Session) -> None:
    """Collectives change no setting of the process, use none of its random numbers, and leave nothing behind: no thread,
    descriptor, shared memory or array for each call.
    """
    world, promised = session.world_size, session.capabilities
    dtype = dtypes(promised)[0]
    count = GRAIN // np.dtype(dtype).itemsize
    kinds = _calls(session, TensorSpec((world * (count // world + 1),), dtype, "powers"))
    _leave_no_trace(session, kinds, _calls(session, TensorSpec((world,), dtype, "powers")))


def _calls(session: Session, tensor: TensorSpec) -> list[tuple[Operation, ...]]:
    """Each promised collective with this tensor; all_reduce with each reduction, or with one if it is small."""
    world, promised = session.world_size, session.capabilities
    reduction = usual_reduction(promised, tensor.dtype)
    small = tensor.shape[0] <= world
    reductions: list[Reduction] = [reduction] if small else fitting_reductions(promised, tensor.dtype)
    made: dict[str, tuple[Operation, ...]] = {
        "all_reduce": tuple(AllReduce(tensor, each) for each in reductions),
        "broadcast": (Broadcast(tensor),),
        "all_gather": (AllGather(tensor),),
        "reduce_scatter": (ReduceScatter(tensor, reduction),),
        "barrier": (Barrier(),),
    }
    if world > 1:
        made["send_recv"] = (SendRecv(tensor, ((0, world - 1), (world - 1, 0))),)
    kinds = [operations for name, operations in made.items() if name in promised.collectives]
    if "all_reduce" in promised.collectives:
        kinds += [(AllReduce(tensor, reduction, wait=False), Wait(0))] * promised.asynchronous
        kinds += [(AllReduce(tensor, reduction, (world - 1,)),)] * promised.subgroups
        kinds += [(AllReduce(tensor, reduction, in_place=True),)] * promised.in_place
    return kinds


@law("sampler", "facet:sampler", "world_size<=2")
def check_samplers_leave_the_process_as_it_was(session: Session) -> None:
    """Making and reading samplers changes no setting of the process, seeds and uses none of its random numbers, and leaves
    nothing behind.
    """
    kinds = [(Sample(400 * session.world_size, (0, 1), shuffle),) for shuffle in (True, False)]
    _leave_no_trace(session, kinds, [(Sample(4, (0, 1)),)])


@law("metrics", "facet:metrics", "world_size<=2")
def check_metrics_leave_the_process_as_it_was(session: Session) -> None:
    """Aggregating metrics changes no setting of the process, and leaves nothing behind."""
    kinds = [(Aggregate((1.5,) * session.world_size, (2,) * session.world_size),)]
    _leave_no_trace(session, kinds, kinds)


@law("scores", "facet:scores", "world_size<=2")
def check_scores_leave_the_process_as_it_was(session: Session) -> None:
    """Computing scores changes no setting of the process, and leaves nothing behind, neither samples nor sums."""
    world = session.world_size
    held = tuple((rank, rank + world) for rank in range(world))
    each = [(Score(name, held, 2),) for name in sorted(session.capabilities.scores)]
    _leave_no_trace(session, each, each[:1])


@law("randomness", "facet:randomness", "world_size<=2")
def check_random_numbers_leave_the_process_as_it_was(session: Session) -> None:
    """A rank's streams are its own: the generators of the process are neither seeded nor used, no setting is changed."""
    _leave_no_trace(session, [(Draw(0, (0, 1), 1000),)], [(Draw(0, (0, 1), 1),)])


def _leave_no_trace(
    session: Session, large: Sequence[tuple[Operation, ...]], small: Sequence[tuple[Operation, ...]]
) -> None:
    """One kind at a time, so that what it leaves has a name. Small ones are many and, for time's sake, together at first.

    What grows then may be a record of the last thousand calls: it is full before they are looked at kind by kind.
    """
    world = session.world_size
    for_each(session, [Job(world, (Rounds(operations),)) for operations in large], _nothing_changed)
    together = tuple(operation for operations in small for operation in operations)
    if not all(_grows(session, together) for _ in range(2)):
        return
    for operations in small:
        if _grows(session, operations):
            job = Job(world, (Rounds(operations, MANY),))
            for_each(session, [job] * FILLING, _completed)
            for_each(session, [job], _nothing_changed)


def _grows(session: Session, operations: tuple[Operation, ...]) -> bool:
    """Whether many of these calls leave something behind, in two rounds of which the first may."""
    found: list[Finding] = []

    def judge(job: Job, trace: Trace) -> None:
        try:
            _nothing_changed(job, trace)
        except Finding as finding:
            found.append(finding)

    for_each(session, [Job(session.world_size, (Rounds(operations, MANY, 2),))], judge)
    return bool(found)


def _completed(_: Job, trace: Trace) -> None:
    expect.completed(trace)


def _nothing_changed(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    (rounds,) = job.operations
    assert isinstance(rounds, Rounds)
    what = ", ".join(dict.fromkeys(operation.kind for operation in rounds.operations))
    for rank in range(job.world_size):
        changed, held = (trace.values(0, name)[rank] for name in ("changed", "held"))
        _settings_stay(f"{what} on rank {rank}", changed)
        _nothing_piles_up(f"{what} on rank {rank}", held, rounds.times)


def _settings_stay(what: str, changed: Sequence[Sequence[str]]) -> None:
    """What the first round does, as by an import or to choose a port, it may do once."""
    names = list(changed[1])
    generators = any(name in GENERATORS for name in names)
    expect.that(
        not names,
        f"{what}: {', '.join(names)} changed, but should stay as the program has set it",
        "the generator of the process is seeded or drawn from: masks, noise and orders that the program draws from it change, "
        "or come again"
        if generators
        else "a setting of the whole process is changed for a moment's need, and not put back",
    )


def _nothing_piles_up(what: str, held: Sequence[dict[str, int]], times: int) -> None:
    """More in each of the rounds after the first: by one for each call, or nearly so."""
    _, *after = held
    many = times >= MANY
    for name in after[0]:
        if many != (name == "objects"):  # others come to light, or to an end, with few calls
            continue
        growth = [later[name] - earlier[name] for earlier, later in pairwise(after)]
        expect.that(
            min(growth) < each_leaves(name, times),
            f"{what}: got {' and then '.join(f'{each:,}' for each in growth)} more {name} from {times} calls each, but should "
            "leave nothing behind",
            f"{'arrays' if name == 'bytes' else 'small objects'} are kept after their use: memory grows with every call"
            if name in MEMORY
            else f"every call leaves {name} behind, which a long run has no more of some day",
        )
