"""Traffic: bytes that each rank sends, as its kernel counts them on TCP connections.

Ranks that share memory are made to send over TCP if their launcher can (Job.over_tcp). Otherwise the implementation's own
counts are used, and the verdict says so. With neither, the result is CannotTell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.causes import traffic as causes
from ddpcheck.checks import Observation, law
from ddpcheck.contract import CallForm, Capabilities, ReplicaMethod, Traffic, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.processes import (
    OF_A_WRONG_COUNT,
    OF_BYTES_INSIDE_NO_SYNC,
    OF_MANY_MESSAGES,
    OF_TOO_FEW_COUNTED,
)
from ddpcheck.hypotheses.traffic import ManyMessages, SentInside, WrongCount
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Backward,
    Broadcast,
    DataSpec,
    Job,
    Operation,
    ReduceScatter,
    SendRecv,
    TensorSpec,
    Wait,
    ZeroGrad,
)
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.operations.probes import Sent
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..collectives.names import named
from ..drawing import for_each
from ..strategies_collectives import dtypes, fitting_reductions, floating, reductions, usual_dtype
from . import growth
from .counts import begun, by_itself, by_kernel, counted
from .traffic_limits import CHANGE, HEADERS, Demand, sends_no_more

if TYPE_CHECKING:
    from ddpcheck.session import Session

LARGE = (131, 1009)
"""Half a megabyte of float32, which no small number of ranks divides."""
_SMALL = (1009,)
"""Four kilobytes, which may use another path."""
_SMALL_LAYERS = 300
"""Layers of two parameters each."""


@law("wire", needs.collectives.operations("all_reduce"), needs.world.traffic(Traffic.ONCE), needs.ranks(2))
def check_large_collectives_send_no_excess_bytes(session: Session) -> str:
    """In a large all-reduce, reduce-scatter or all-gather, the ranks together send no more bytes than good algorithms need;
    with Traffic.LEAST, neither does each rank. This also holds for means, asynchronously and in place.
    """
    world, promised = session.world_size, session.capabilities
    reduction, offered = reductions(promised)[0], dtypes(promised)
    made: list[Operation] = [AllReduce(TensorSpec(LARGE, dtype, "powers"), reduction) for dtype in offered]
    usual = _usual(promised)
    if {"sum", "mean"} <= promised.collectives.reductions and floating(usual.tensor.dtype):
        made.append(replace(usual, reduction="mean"))  # MPI sends more for a user-defined operation
    made += [replace(usual, wait=False)] * promised.has(CallForm.ASYNCHRONOUS)
    made += [replace(usual, in_place=True)] * promised.has(CallForm.IN_PLACE)
    scattered = next(iter(fitting_reductions(promised, offered[0])), None)
    if "reduce_scatter" in promised.collectives.operations and scattered:
        made.append(ReduceScatter(TensorSpec((world * 131, 1009 // world), offered[0], "powers"), scattered))
    if "all_gather" in promised.collectives.operations:
        made.append(AllGather(TensorSpec(LARGE, offered[0], "powers")))
    if promised.has(CallForm.SUBGROUPS) and world > 2:
        made.append(AllReduce(TensorSpec(LARGE, offered[0], "powers"), reduction, tuple(range(1, world))))
    return _judged(session, Job(world, _with_counts_between(made)), _collectives)


@law("wire", needs.replica, needs.world.traffic(Traffic.ONCE), needs.ranks(2))
def check_backward_sends_gradients_only_once(session: Session) -> str:
    """A synchronised backward, also the last of an accumulation window, sends no more than one all-reduce of all gradients
    needs.
    """
    return _judged(
        session, _training(session.world_size, window=session.capabilities.has(ReplicaMethod.NO_SYNC)), _once
    )


@law("wire", needs.replica, needs.ranks(2, most=2))
def check_traffic_does_not_grow_from_step_to_step(session: Session) -> Observation:
    """Equal training steps send equally many bytes in equally many messages.

    The amount, compared with the least for the gradients, is an observation: only `traffic` and `bundles_gradients` promise
    a limit.
    """
    world, seen = session.world_size, list[str]()

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        seen.append(growth.judged(job, trace))

    job = growth.equal_steps(world, session.capabilities)
    for_each(session, [replace(job, over_tcp=session.offers_tcp)], judge)
    return Observation(seen[0])


@law("wire", needs.replica, needs.replica.no_sync, needs.ranks(2))
def check_nothing_is_sent_inside_no_sync(session: Session) -> str:
    """Inside no_sync, a backward sends next to nothing, because saving this traffic is the purpose of no_sync."""
    return _judged(session, _training(session.world_size, window=True), _silent)


@law("wire", needs.replica, needs.replica.bundles_gradients, needs.ranks(2, most=4))
def check_small_gradients_share_messages(session: Session) -> str:
    """The gradients of many small parameters share messages: a backward sends fewer messages than a quarter of the number of
    parameters.
    """
    world = session.world_size
    layers = tuple(Linear(f"fc{number}", 2, 2) for number in range(_SMALL_LAYERS))
    shards = tuple((rank,) for rank in range(world))
    operations = (Backward(shards), ZeroGrad(), Sent(), Backward(shards), Sent())
    job = Job(world, operations, model=ModelSpec(layers, "linear"), data=DataSpec(world))
    return _judged(session, job, _together)


@law("wire", needs.collectives.operations("all_reduce"), needs.world.counts_traffic, needs.ranks(2))
def check_traffic_counters_match_bytes_sent(session: Session) -> str:
    """For each large collective, counts() reports on each rank the bytes that the kernel sees sent, and one collective
    begun.

    Where the kernel cannot see all bytes, the total is at least the minimum of any algorithm, in at least one message.
    All-reduce is also checked asynchronously, in place, in a group, and with small arrays.
    """
    world, promised = session.world_size, session.capabilities
    reduced = _usual(promised)
    tensor = reduced.tensor
    rows = replace(tensor, shape=(LARGE[0] // world * world, LARGE[1]))
    made: list[Operation] = [reduced]
    made += [replace(reduced, wait=False)] * promised.has(CallForm.ASYNCHRONOUS)
    made += [replace(reduced, in_place=True)] * promised.has(CallForm.IN_PLACE)
    made += [replace(reduced, group=(0, world - 1))] * promised.has(CallForm.SUBGROUPS)
    made.append(replace(reduced, tensor=replace(tensor, shape=_SMALL)))
    scattered, sent = ReduceScatter(rows, reduced.reduction), SendRecv(tensor, ((world - 1, 0),))
    others = (Broadcast(tensor, world - 1), AllGather(tensor), scattered, sent)
    made += [operation for operation in others if operation.kind in promised.collectives.operations]
    return _judged(session, Job(world, _with_counts_between(made)), _told)


@law("wire", needs.collectives.operations("all_reduce"), needs.world.counts_traffic, needs.ranks(most=1))
def check_traffic_counters_of_a_single_rank_are_zero(session: Session) -> None:
    """At world size 1, counts() reports no bytes and no messages."""
    promised = session.capabilities
    reduced = AllReduce(TensorSpec(LARGE, dtypes(promised)[0], "powers"), reductions(promised)[0])
    for_each(session, [Job(session.world_size, (reduced, Sent()))], _nothing_told)


def _usual(promised: Capabilities) -> AllReduce:
    """In float32, if promised."""
    return AllReduce(TensorSpec(LARGE, usual_dtype(promised), "powers"), reductions(promised)[0])


def _with_counts_between(made: Sequence[Operation]) -> tuple[Operation, ...]:
    """Each operation with Sent before and after, and a Wait if it is asynchronous."""
    found: list[Operation] = [Sent()]
    for operation in made:
        waits = isinstance(operation, AllReduce) and not operation.wait
        found += [operation, *[Wait(len(found))] * waits, Sent()]
    return tuple(found)


def _counted_ones(job: Job) -> Iterator[tuple[int, Operation]]:
    """The operations between two Sent, by position."""
    return ((at, one) for at, one in enumerate(job.operations) if not isinstance(one, Sent | Wait))


def _judged(session: Session, job: Job, judge: Callable[[Job, Trace, bool], str]) -> str:
    """Run the Job, over TCP if possible. The judge reports the counter if it was not the kernel."""
    notes: list[str] = []

    def noted(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        notes.append(judge(job, trace, (session.capabilities.world.traffic >= Traffic.LEAST)))

    for_each(session, [replace(job, over_tcp=session.offers_tcp)], noted)
    return notes[0]


def _collectives(job: Job, trace: Trace, each: bool) -> str:
    demands = []
    for position, operation in _counted_ones(job):
        assert isinstance(operation, (AllReduce, ReduceScatter, AllGather))
        ranks = operation.group or range(job.world_size)
        size = operation.tensor.on(0).nbytes
        demands.append(Demand(operation.kind, size, ranks, named(operation, position), each))
    seen = counted(trace, demands[0].least)
    for number, demand in enumerate(demands):
        sends_no_more([seen.bytes[rank][number] for rank in demand.ranks], demand, seen.note)
    return seen.note


_MODEL = ModelSpec((Linear("fc", 256, 511),), "linear")
_WINDOW = 2


def _training(world_size: int, *, window: bool) -> Job:
    """Sent before and after: two synchronised backwards and, with `window`, two inside no_sync and the final synchronised
    one.
    """
    samples = tuple((rank,) for rank in range(world_size))
    operations: list[Operation] = [ZeroGrad(), Sent(), Backward(samples), ZeroGrad(), Sent(), Backward(samples), Sent()]
    if window:
        operations += [ZeroGrad(), *[Backward(samples, sync=False)] * _WINDOW, Sent(), Backward(samples), Sent()]
    return Job(world_size, tuple(operations), model=_MODEL, data=DataSpec(world_size))


def _gradients(job: Job, what: str, each: bool) -> Demand:
    """One all-reduce of all gradients."""
    assert job.model is not None
    size = sum(array.nbytes for array in job.initial(0).values())
    return Demand("all_reduce", size, range(job.world_size), what, each)


def _once(job: Job, trace: Trace, each: bool) -> str:
    demand = _gradients(job, "a synchronised backward", each)
    seen = counted(trace, demand.least)
    sends_no_more([sent[1] for sent in seen.bytes], demand, seen.note)
    if len(seen.bytes[0]) > 2:
        last = replace(demand, what="the backward that ends a window of no_sync")
        sends_no_more([sent[3] for sent in seen.bytes], last, seen.note)
    return seen.note


def _silent(job: Job, trace: Trace, each: bool) -> str:
    demand = _gradients(job, "", each)
    seen = counted(trace, 2 * demand.least, 2)
    before, inside_all = (sum(sum(sent[at]) for sent in seen.bytes) for at in (slice(2), slice(2, 3)))
    for rank, (_, synchronised, inside, _) in enumerate(seen.bytes):
        if inside > demand.size // 8:
            of = SentInside(inside, _WINDOW * synchronised, inside_all, before, 2 * demand.least)
            raise Finding(
                Diagnosis(
                    f"rank {rank} sent {inside:,} bytes in {_WINDOW} backwards inside no_sync, but should have sent next to "
                    f"nothing; a synchronised backward sends {synchronised:,}",
                    first_cause(OF_BYTES_INSIDE_NO_SYNC, of),
                    details=(seen.note,) if seen.note else (),
                )
            )
    return seen.note


def _told(job: Job, trace: Trace, each: bool) -> str:
    kernel, own, collectives = by_kernel(trace), by_itself(trace), begun(trace)
    note = ""
    for number, (position, reduced) in enumerate(_counted_ones(job)):
        assert isinstance(reduced, AllReduce | ReduceScatter | AllGather | Broadcast | SendRecv)
        group = getattr(reduced, "group", None) or range(job.world_size)
        demand = Demand(reduced.kind, reduced.tensor.on(0).nbytes, group, "", each)
        seen, told = ([counts[number] for counts in one.bytes] for one in (kernel, own))
        _told_in_messages(told, [counts[number] for counts in own.messages], named(reduced, position))
        if not isinstance(reduced, SendRecv):
            _told_as_begun([counts[number] for counts in collectives], group, named(reduced, position))
        least = (2 - CHANGE) * demand.least
        if sum(seen) >= least:  # ranks on several hosts may also send in memory, which the kernel does not count
            _same(seen, told, named(reduced, position))
            continue
        note = own.note
        if sum(told) < least:
            raise Finding(
                Diagnosis(
                    f"{named(reduced, position)}: counts() tells {sum(told):,} bytes in all, but no algorithm does with fewer "
                    f"than {demand.least:,.0f} for {demand.size:,} bytes among {len(group)} ranks",
                    first_cause(OF_TOO_FEW_COUNTED, told),
                    details=tuple(f"rank {rank} tells {count:,} bytes" for rank, count in enumerate(told)),
                )
            )
    return note


def _told_as_begun(collectives: list[int], members: Sequence[int], what: str) -> None:
    for rank in members:
        if not collectives[rank]:
            headline = f"{what}: counts() of rank {rank} reports no started collective, but this is one"
            raise Finding(Diagnosis(headline, (causes.CALL_NOT_COUNTED(),)))


def _told_in_messages(sent: list[int], messages: list[int], what: str) -> None:
    for rank, (count, number) in enumerate(zip(sent, messages, strict=True)):
        if count and not number:
            headline = f"{what}: counts() of rank {rank} reports {count:,} bytes, but no messages"
            raise Finding(Diagnosis(headline, (causes.MESSAGES_NOT_COUNTED(),)))


def _nothing_told(_: Job, trace: Trace) -> None:
    assertions.completed(trace)
    counts = trace.values(1, "counts")[0]
    told = {name: counts.get(name, 0) for name in ("bytes", "messages")}
    assertions.that(
        not any(told.values()),
        f"rank 0: counts() reports {told['bytes']:,} bytes and {told['messages']:,} messages, but there is no rank to send to",
        causes.COUNTS_OWN_SENDS(),
    )


def _same(seen: list[int], told: list[int], what: str) -> None:
    for rank, (sent, count) in enumerate(zip(seen, told, strict=True)):
        if abs(count - sent) > (CHANGE - 1) * sent + HEADERS * len(seen):
            headline = f"{what}: rank {rank} sent {sent:,} bytes, but counts() reports {count:,}"
            raise Finding(Diagnosis(headline, first_cause(OF_A_WRONG_COUNT, WrongCount(sent, count))))


def _together(job: Job, trace: Trace, each: bool) -> str:
    """Gradients that are sent one by one cost every rank at least one message each."""
    seen = counted(trace, _gradients(job, "", each).least)
    sent = [counts[0] for counts in seen.messages]
    number, least = 2 * _SMALL_LAYERS, min(sent)
    if least * 4 >= number:
        raise Finding(
            Diagnosis(
                f"rank {sent.index(least)} sent {least} messages in a backward of {number} small gradients, and no rank fewer: "
                f"should be fewer than {number // 4}",
                first_cause(OF_MANY_MESSAGES, ManyMessages(least, number)),
                "whether gradients are collected in buckets, and how large these are",
                (seen.note,) if seen.note else (),
            )
        )
    return seen.note
