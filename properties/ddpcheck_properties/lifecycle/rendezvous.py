"""Rendezvous under disturbances: late ranks, foreign clients, fragmented messages, and remains of an earlier world.

Each Job restarts the ranks (job.Start) and checks whether they form one world, by collectives or else by a few training
steps. A failing Job runs again, several times, after an undisturbed start; if it fails there as well, even once, the
disturbance is not the cause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import rendezvous as causes
from ddpcheck.checks import law
from ddpcheck.contract import Determinism, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.ranks import OF_A_DISTURBED_START
from ddpcheck.hypotheses.rendezvous import DisturbedStart
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Broadcast,
    Job,
    Operation,
    OptimizerSpec,
    SendRecv,
    ShortReads,
    Start,
    TensorSpec,
)
from ddpcheck.numerics import same_bits
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from .. import explicit_examples
from ..collectives.comparison import results_hold
from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge, finding_on
from ..replicas.comparison import as_one_process
from ..strategies_collectives import dtypes, exact_tensor, reductions

if TYPE_CHECKING:
    from ddpcheck.session import Session

ANYWHERE = ("0.0.0.0:", "[::]:")
_QUIET_RUNS = 10
"""Of a Job that failed after a disturbance, because a race fails only in some runs."""
LARGE = 3000
"""Elements: more than one small message, and still fast in fragments."""


@law("rendezvous", needs.ranks(2, most=3))
def check_ranks_may_connect_in_any_order(session: Session) -> None:
    """Ranks keep their declared numbers in any order of arrival: rank 0 may be late, and the last rank may be first.

    Where promised, results have the same bits as in the run before, even with another, empty temporary folder.
    """
    world = session.world_size
    order = (world - 1, 0, *range(world - 2, 0, -1))
    last = _bits_of_before(session) if world > 2 else None  # a sum of two has only one order
    _forms_a_world(session, Start(order, own_folder=last is not None), last=last)


@law("rendezvous", needs.ranks(2, most=3))
def check_fragmented_messages_are_read_completely(session: Session) -> None:
    """Ranks read every message completely, header included, whether it arrives at once or byte by byte, at start-up and
    later.
    """
    probe = _probe(session)
    if probe is None:
        return
    job, judge = probe
    short = replace(job, operations=(ShortReads(), *job.operations, ShortReads(on=False)))
    reads: list[int] = []

    def judged(job: Job, trace: Trace) -> None:
        _blaming_the_start(judge)(job, trace)
        reads.extend(seen["reads"] for _, ranks in trace.all_values("short_reads") for seen in ranks)

    if session.replayed is None or not _is_disturbed(session.replayed):
        for_each(session, [job], judge)
    try:
        for_each(session, [short], judged)
    except Finding:
        _holds_after_quiet_start(session, job, judge)
        raise
    # otherwise the implementation does not read from Python's sockets, so nothing can be fragmented
    if any(reads) and session.world_size == 2:
        _forms_a_world(session, Start(short_reads=True))


@law("rendezvous", needs.ranks(2, most=2))
def check_free_ports_are_held_until_they_are_used(session: Session) -> None:
    """Ranks form a world although every port that one of them looks up as free and releases is taken at once."""
    _forms_a_world(session, Start(taken_ports=True))


@law("rendezvous", needs.ranks(2, most=3), needs.world.closed_to_strangers)
def check_foreign_connections_are_ignored(session: Session) -> None:
    """Ranks listen only on the interface of MASTER_ADDR, and foreign connections change nothing, during start-up or later. A
    foreign client becomes no rank and delays no rank, and nothing that it sends is executed.
    """
    _forms_a_world(session, Start(strangers=True), _foreign_clients_ignored)


@law("rendezvous", needs.ranks(2, most=2), needs.world.restarts_in_place)
def check_world_can_restart_at_a_killed_worlds_address(session: Session) -> None:
    """A new world can start at the address of a world that was just killed, with its last rank arriving first, and sees
    nothing of the old world.
    """
    _forms_a_world(session, Start(tuple(reversed(range(session.world_size))), in_place=True))


@law("rendezvous", needs.ranks(2, most=2), needs.world.shares_host)
def check_worlds_on_one_host_are_independent(session: Session) -> None:
    """Two worlds on one host, each with its own MASTER_PORT, start and run at once, and neither sees anything of the other."""
    _forms_a_world(session, Start(neighbour=True))


def _bits_of_before(session: Session) -> tuple[Operation, Judge] | None:
    """A reduction of real values, whose last bits depend on the order of additions, and its judge."""
    world, promised = session.world_size, session.capabilities
    offered = {"float32", "float64"} & promised.collectives.dtypes
    due = (
        needs.collectives.operations("all_reduce"),
        needs.collectives.reductions("sum"),
        needs.world.determinism(Determinism.BETWEEN_RUNS),
    )
    if not offered or any(need.lacking(promised, world) for need in due):
        return None
    reduced = AllReduce(TensorSpec((64,), min(offered), "real"))
    before = session.run(Job(world, (reduced,)))
    assertions.completed(before)

    def judge(job: Job, trace: Trace) -> None:
        for rank, (first, second) in enumerate(zip(before.ranks, trace.ranks, strict=True)):
            result, again = first.values(0)["result"], second.values(len(job.operations) - 1)["result"]
            assertions.that(
                same_bits(again, result),
                f"all_reduce sum of real values on rank {rank}, after the ranks were started anew: got other bits in "
                f"{int((again != result).sum())} of {result.size} elements, but should be those of the run before",
                (causes.ORDER_BY_ARRIVAL(), causes.ORDER_FROM_A_FILE()),
            )

    return reduced, judge


def _forms_a_world(
    session: Session,
    start: Start,
    also: Judge | None = None,
    last: tuple[Operation, Judge] | None = None,
) -> None:
    """The probe after this start, perhaps with a last operation, whose judge runs last."""
    probe = _probe(session)
    if probe is None:
        return
    job, judge = probe
    if last is not None:
        job = replace(job, operations=(*job.operations, last[0]))
    disturbed, blaming = replace(job, start=start), _blaming_the_start(judge)

    def judged(job: Job, trace: Trace) -> None:
        if also is not None:
            also(job, trace)
        blaming(job, trace)
        if last is not None:
            last[1](job, trace)

    try:
        for_each(session, [disturbed], judged)
    except Finding as finding:
        _holds_after_quiet_start(session, job, judge)
        raise _with_the_start_first(finding, disturbed) from None


def _is_disturbed(job: Job) -> bool:
    return job.start is not None or any(isinstance(each, ShortReads) for each in job.operations)


def _holds_after_quiet_start(session: Session, job: Job, judge: Judge) -> None:
    """The Finding of the Job after an undisturbed start, if one of its runs fails."""
    quiet = replace(job, start=Start(tuple(range(session.world_size))))
    for again in (quiet, *[job] * (_QUIET_RUNS - 1)):
        other = finding_on(session, again, judge)
        if other is not None:
            other.job = again
            raise other from None


def _probe(session: Session) -> tuple[Job, Judge] | None:
    """A Job that shows whether the ranks are one world, and its judge; None if no promise allows one."""
    world, promised = session.world_size, session.capabilities
    if "collectives" in promised.facets:
        dtype = dtypes(promised)[0]
        made: list[Operation] = [
            AllGather(TensorSpec((5,), dtype)),
            Broadcast(TensorSpec((5,), dtype, seed=1), world - 1),
            SendRecv(TensorSpec((5,), dtype, seed=2), ((0, world - 1), (world - 1, 0))),
        ]
        for reduction in reductions(promised)[:1]:
            tensors = (exact_tensor((size,), dtype, reduction, world, wide=False) for size in (5, LARGE))
            made += [AllReduce(tensor, reduction) for tensor in tensors]
        operations = tuple(operation for operation in made if operation.kind in promised.collectives.operations)
        if operations:
            return Job(world, operations), results_hold
    if "replica" in promised.facets and "sgd" in promised.replica.optimizers:
        jobs = fitting(session, [explicit_examples.steps(world, OptimizerSpec(lr=0.05), count=2)])
        return (jobs[0], as_one_process(promised)) if jobs else None
    return None


def _blaming_the_start(judge: Judge) -> Judge:
    """The judge, whose findings have the start as their cause; its own causes become details."""

    def judged(job: Job, trace: Trace) -> None:
        try:
            judge(job, trace)
        except Finding as finding:
            own = finding.diagnosis.cause
            told = finding.noting(f"at first sight: {own.headline}") if own is not None else finding
            of = DisturbedStart(job, trace.completed)
            raise told.blaming(first_cause(OF_A_DISTURBED_START, of)) from None

    return judged


def _with_the_start_first(finding: Finding, job: Job) -> Finding:
    """The finding with the causes of this Job's start first, then those of the operations."""
    told = finding.diagnosis.causes
    ends = (DisturbedStart(job, completed) for completed in (True, False))
    shown = {cause for of in ends for cause in first_cause(OF_A_DISTURBED_START, of)}
    return finding.blaming(*(cause for cause in told if cause in shown), *told)


def _foreign_clients_ignored(job: Job, trace: Trace) -> None:
    if trace.start.ran:
        raise Finding(
            Diagnosis(
                "a rank loaded a pickle from a foreign client, but should run nothing that a foreign client sends",
                (causes.UNPICKLES_STRANGERS(),),
                "the first bytes that are read from a new connection: a fixed binary header, and a secret of the run",
            )
        )
    for rank, addresses in enumerate(trace.start.listening):
        for address in addresses:
            assertions.that(
                not address.startswith(ANYWHERE),
                f"rank {rank} listens on {address}, every interface of the host, but should listen only on that of MASTER_ADDR",
                causes.LISTENS_EVERYWHERE(),
            )
