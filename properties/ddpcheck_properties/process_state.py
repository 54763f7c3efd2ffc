"""Process state that an implementation must not change: settings, which belong to the program, and resources.

A long run fails if every call leaves memory, threads or descriptors behind.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import process_state as causes
from ddpcheck.checks import law
from ddpcheck.contract import CallForm, ReplicaMethod, needs
from ddpcheck.execution.process_resources import GRAIN, MANY, left_by_each_call
from ddpcheck.execution.process_settings import GENERATORS
from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
from ddpcheck.hypotheses.ordered_hypotheses.processes import OF_A_CHANGED_PROCESS, OF_A_GROWING_PROCESS
from ddpcheck.job import (
    Aggregate,
    AllGather,
    AllReduce,
    Backward,
    Barrier,
    Broadcast,
    Clip,
    Draw,
    Job,
    Make,
    Operation,
    OptimizerSpec,
    Predict,
    ReduceScatter,
    Rounds,
    Sample,
    Save,
    Score,
    SendRecv,
    Step,
    TensorSpec,
    Wait,
    ZeroGrad,
)
from ddpcheck.models.spec import ModelSpec, mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .collectives.names import in_group
from .drawing import for_each, within_promises
from .explicit_examples import fitting
from .judges import Judge
from .strategies import GRADIENTS, shards, training_job
from .strategies_collectives import Reduction, dtypes, fitting_reductions, usual_reduction

if TYPE_CHECKING:
    from ddpcheck.session import Session

_IN_GROUPS = (AllReduce, Broadcast, AllGather, ReduceScatter, Barrier)
FILLING = 9
"""Jobs of three rounds after which a record of the last thousand calls is full."""


@law("collectives", needs.collectives, needs.ranks(most=2))
def check_collectives_leave_process_state_unchanged(session: Session) -> None:
    """Collectives change no process setting and use none of the process's random numbers. No call leaves a thread,
    descriptor, shared memory or array behind.
    """
    world, promised = session.world_size, session.capabilities
    dtype = dtypes(promised)[0]
    count = GRAIN // np.dtype(dtype).itemsize
    kinds = _calls(session, TensorSpec((world * (count // world + 1),), dtype, "powers"))
    _leave_no_trace(session, _jobs(world, kinds), _jobs(world, _calls(session, TensorSpec((world,), dtype, "powers"))))


def _calls(session: Session, tensor: TensorSpec) -> list[tuple[Operation, ...]]:
    """Each promised collective with this tensor, and all in a group; all_reduce with each reduction, or with one if it is
    small.
    """
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
    everyone = tuple(range(world))
    kinds = [operations for name, operations in made.items() if name in promised.collectives.operations]
    if promised.has(CallForm.SUBGROUPS):
        in_groups = [first for first, *_ in kinds if isinstance(first, _IN_GROUPS)]
        kinds.append(tuple(replace(first, group=everyone) for first in in_groups))
    if "all_reduce" in promised.collectives.operations:
        kinds += [(AllReduce(tensor, reduction, wait=False), Wait(0))] * promised.has(CallForm.ASYNCHRONOUS)
        kinds += [(AllReduce(tensor, reduction, (world - 1,)),)] * promised.has(CallForm.SUBGROUPS)
        kinds += [(AllReduce(tensor, reduction, in_place=True),)] * promised.has(CallForm.IN_PLACE)
    return kinds


@law("sampler", needs.sampler, needs.ranks(most=2))
def check_samplers_leave_process_state_unchanged(session: Session) -> None:
    """Creating and reading samplers changes no process setting and leaves nothing behind. It neither seeds nor uses the
    process's random generators; a sampler that promises it may draw one seed for a loader.
    """
    world = session.world_size
    kinds = [(Sample(400 * world, (0, 1), shuffle),) for shuffle in (True, False)]
    drawn = GENERATORS if session.capabilities.sampler.behind_loader else ()
    _leave_no_trace(session, _jobs(world, kinds), _jobs(world, [(Sample(4, (0, 1)),)]), drawn)


@law("metrics", needs.metrics, needs.ranks(most=2))
def check_metrics_leave_process_state_unchanged(session: Session) -> None:
    """Aggregating metrics changes no process setting and leaves nothing behind."""
    world = session.world_size
    jobs = _jobs(world, [(Aggregate((1.5,) * world, (2,) * world),)])
    _leave_no_trace(session, jobs, jobs)


@law("scores", needs.scores, needs.ranks(most=2))
def check_scores_leave_process_state_unchanged(session: Session) -> None:
    """Computing scores changes no process setting and leaves nothing behind, neither samples nor sums."""
    world = session.world_size
    held = tuple((rank, rank + world) for rank in range(world))
    each = _jobs(world, [(Score(name, held, 2),) for name in sorted(session.capabilities.scores.score_names)])
    _leave_no_trace(session, each, each[:1])


@law("randomness", needs.randomness, needs.ranks(most=2))
def check_random_streams_leave_process_state_unchanged(session: Session) -> None:
    """Random streams neither seed nor use the process's generators, and change no setting."""
    many, one = _jobs(session.world_size, [(Draw(0, (0, 1), count),) for count in (1000, 1)])
    _leave_no_trace(session, [many], [one])


@law("replica_sync", needs.replica, needs.ranks(most=2))
def check_training_leaves_process_state_unchanged(session: Session) -> None:
    """A replica that trains, predicts and is saved changes no process setting and uses none of the process's random numbers.
    No step leaves a batch, graph, hook, thread or descriptor behind.
    """
    large = [_trained(session, mlp((_WIDTH, _WIDTH), loss="linear"), kind) for kind in _uses(session, _ROWS)]
    widest = max(session.capabilities.replica.replica_dtypes, default="float32")
    small = [_trained(session, mlp((2, 3, 2), loss="linear", dtype=widest), kind) for kind in _uses(session, 1)]
    large = fitting(session, large)
    _leave_no_trace(
        session,
        large if _leaving(session, [_again(_together(large))], partial(_nothing_changed, ())) else [],
        fitting(session, small),
    )


@law("replica_sync", needs.replica, needs.ranks(most=2))
def check_make_replica_leaves_process_state_unchanged(session: Session) -> None:
    """make_replica() seeds no random generator of the process and changes no setting. It may draw numbers, as building a
    module does, so each rank's generators continue from their own state.
    """
    job = training_job(session.world_size, mlp((2, 3, 2), loss="linear"), [Make()], exact=False)
    for_each(session, fitting(session, [job]), _making_leaves_no_trace)


_WIDTH, _ROWS = 100, 96
"""The weights, and a layer's outputs for a rank's batch, are GRAIN bytes in float32."""


def _uses(session: Session, rows: int) -> list[tuple[Operation, ...]]:
    """Repeated operations on a replica, by kind; the first is a training step."""
    world, promised = session.world_size, session.capabilities
    batch = shards([rows] * world)
    step: list[Operation] = [ZeroGrad(), Backward(batch), *GRADIENTS, *[Step()] * bool(promised.replica.optimizers)]
    kinds: list[tuple[Operation, ...]] = [tuple(step)]
    kinds += [(ZeroGrad(), Backward(batch, sync=False), Backward(batch))] * promised.has(ReplicaMethod.NO_SYNC)
    kinds += [(ZeroGrad(), Backward(batch), Clip(1.0))] * promised.has(ReplicaMethod.CLIPPING)
    return [*kinds, (Predict(batch),), *[(Save(),)] * promised.has(ReplicaMethod.CHECKPOINT)]


def _trained(session: Session, model: ModelSpec, operations: tuple[Operation, ...]) -> Job:
    rule = OptimizerSpec("adam" if "sgd" not in session.capabilities.replica.optimizers else "sgd", lr=2.0**-20)
    job = training_job(session.world_size, model, operations, rule, exact=False)
    return within_promises(job, session.capabilities)


def _making_leaves_no_trace(_: Job, trace: Trace) -> None:
    assertions.completed(trace)
    changed, before, after = (trace.values(0, name) for name in ("changed", "before", "after"))
    for rank, each in enumerate(changed):
        # the first round may import a module, which changes settings once
        others = [name for name in each[1] if name not in GENERATORS and name in each[2]]
        _settings_stay(f"make_replica() on rank {rank}", ((), others))
        for name in after[rank][-1]:
            was, became = ({states[name] for states in found[rank] if name in states} for found in (before, after))
            assertions.that(
                len(was) == 1 or len(became) > 1,
                f"make_replica() on rank {rank}: {name} is in one state after each of {len(each)} calls, but should go on from "
                f"where it was, which were {len(was)} states",
                causes.MAKING_SEEDS(generator=name),
            )
            assertions.that(
                not rank
                or before[rank][-1][name] == before[0][-1][name]
                or after[rank][-1][name] != after[0][-1][name],
                f"make_replica() on rank {rank}: {name} is afterwards in the state of rank 0's, but should go on from its own",
                causes.MAKING_SEEDS_RANKS_ALIKE(generator=name),
            )


def _jobs(world_size: int, kinds: Sequence[tuple[Operation, ...]]) -> list[Job]:
    return [Job(world_size, operations) for operations in kinds]


def _leave_no_trace(
    session: Session, large: Sequence[Job], small: Sequence[Job], allowed: Collection[str] = ()
) -> None:
    """One kind of operation at a time, so a leak is attributed to its kind. Small ones run together at first, to save time.

    A suspected leak is tested again, because a first use may allocate in several steps. A record of the last thousand calls
    is full by then.
    """
    unchanged = partial(_nothing_changed, allowed)
    for_each(session, _leaving(session, [_again(job) for job in large], unchanged), unchanged)
    if not small or not all(_leaving(session, [_again(_together(small), MANY, 2)], unchanged) for _ in range(2)):
        return
    for one in small:
        if _leaving(session, [_again(one, MANY, 2)], unchanged):
            job = _again(one, MANY)
            for_each(session, [job] * FILLING, _completed)
            for_each(session, [job], unchanged)


def _again(job: Job, *rounds: int) -> Job:
    """The Job's operations in this number of rounds, repeated this often in each."""
    return replace(job, operations=(Rounds(job.operations, *rounds),))


def _together(jobs: Sequence[Job]) -> Job:
    return replace(jobs[0], operations=tuple(operation for job in jobs for operation in job.operations))


def _leaving(session: Session, jobs: Sequence[Job], unchanged: Judge) -> list[Job]:
    """The operations whose rounds leave something behind, or change a setting."""
    found: list[Job] = []

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        try:
            unchanged(job, trace)
        except Finding:
            found.append(job)

    for_each(session, jobs, judge)
    return found


def _completed(_: Job, trace: Trace) -> None:
    assertions.completed(trace)


def _nothing_changed(allowed: Collection[str], job: Job, trace: Trace) -> None:
    """A judge. allowed: settings that may change."""
    assertions.completed(trace)
    (rounds,) = job.operations
    assert isinstance(rounds, Rounds)
    what = ", ".join(dict.fromkeys(operation.kind + in_group(operation) for operation in rounds.operations))
    for rank in range(job.world_size):
        changed, held = (trace.values(0, name)[rank] for name in ("changed", "held"))
        _settings_stay(f"{what} on rank {rank}", changed, allowed)
        _nothing_piles_up(f"{what} on rank {rank}", held, rounds.times)


def _settings_stay(what: str, changed: Sequence[Sequence[str]], allowed: Collection[str] = ()) -> None:
    """The first round may change settings once, as an import or the choice of a port does."""
    names = [name for name in changed[1] if name not in allowed]
    assertions.that(
        not names,
        f"{what}: {', '.join(names)} changed, but should stay as the program has set it",
        all_causes(OF_A_CHANGED_PROCESS, names),
    )


def _nothing_piles_up(what: str, held: Sequence[dict[str, int]], times: int) -> None:
    """Fails if every round after the first leaves more, by about one for each call."""
    _, *after = held
    many = times >= MANY
    for name in after[0]:
        if many != (name == "objects"):  # few calls suffice for other resources
            continue
        growth = [later[name] - earlier[name] for earlier, later in pairwise(after)]
        assertions.that(
            min(growth) < left_by_each_call(name, times),
            f"{what}: got {' and then '.join(f'{each:,}' for each in growth)} more {name} from {times} calls each, but should "
            "leave nothing behind",
            first_cause(OF_A_GROWING_PROCESS, name),
        )
