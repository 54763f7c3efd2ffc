"""What goes over the wire: bytes that each rank sends, as its kernel counts them on its TCP connections.

Where nothing of the expected size is seen on any rank, as with shared memory, there is nothing to judge: CannotTell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Backward,
    DataSpec,
    Job,
    Operation,
    ReduceScatter,
    TensorSpec,
    ZeroGrad,
)
from ddpcheck.model import Linear, ModelSpec
from ddpcheck.operations.probes import Sent
from ddpcheck.trace import Trace
from ddpcheck.verdict import CannotTell, Diagnosis, Finding

from .collective_results import named
from .drawing import for_each
from .strategies_collectives import dtypes, fitting_reductions, reductions

if TYPE_CHECKING:
    from ddpcheck.session import Session

LARGE = (131, 1009)
"""Half a megabyte of float32, that no small number of ranks divides."""
CHANGE = 1.02
"""Headers, rounding up of chunks and the like may add so much, and 4 KiB for each rank."""


@law("wire", "collective:all_reduce", "sends_least", "world_size>=2")
def check_large_collectives_send_the_least_bytes(session: Session) -> None:
    """No rank sends more for a large all-reduce, reduce-scatter or all-gather than the best algorithms need."""
    world, promised = session.world_size, session.capabilities
    reduction, offered = reductions(promised)[0], dtypes(promised)
    made: list[Operation] = [AllReduce(TensorSpec(LARGE, dtype, "powers"), reduction) for dtype in offered]
    scattered = next(iter(fitting_reductions(promised, offered[0])), None)
    if "reduce_scatter" in promised.collectives and scattered:
        made.append(ReduceScatter(TensorSpec((world * 131, 1009 // world), offered[0], "powers"), scattered))
    if "all_gather" in promised.collectives:
        made.append(AllGather(TensorSpec(LARGE, offered[0], "powers")))
    if promised.subgroups and world > 2:
        made.append(AllReduce(TensorSpec(LARGE, offered[0], "powers"), reduction, tuple(range(1, world))))
    between: list[Operation] = [Sent()]
    for operation in made:
        between += [operation, Sent()]
    for_each(session, [Job(world, tuple(between))], _sends_least)


@law("wire", "facet:replica", "sends_least", "world_size>=2")
def check_backward_sends_its_gradients_once(session: Session) -> None:
    """No rank sends more in a synchronised backward than for one all-reduce of all gradients, in a window's last too."""
    for_each(session, [_training(session.world_size)], _once)


@law("wire", "facet:replica", "no_sync", "world_size>=2")
def check_nothing_is_sent_inside_no_sync(session: Session) -> None:
    """Inside no_sync a backward sends next to nothing: what it saves is the point of it."""
    for_each(session, [_training(session.world_size)], _silent)


def sent_between(trace: Trace) -> list[list[int]]:
    """For each rank what it sent from one Sent to the next."""
    counted = []
    for rank in trace.ranks:
        totals = [record.values["sent"] for record in rank.records if record.kind == Sent.kind]
        counted.append(
            [
                sum(count - before.get(connection, 0) for connection, count in after.items())
                for before, after in pairwise(totals)
            ]
        )
    return counted


def _sends_least(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    counted = sent_between(trace)
    for number, operation in enumerate(job.operations[1::2]):
        assert isinstance(operation, (AllReduce, ReduceScatter, AllGather))
        ranks = operation.group or tuple(range(job.world_size))
        size = operation.tensor.on(0).nbytes
        _judge(
            [counted[rank][number] for rank in ranks],
            ranks,
            _least(operation.kind, len(ranks), size),
            size,
            named(operation, 2 * number + 1),
        )


def _least(kind: str, size: int, count: int) -> float:
    return {"all_reduce": 2 * (size - 1) / size, "reduce_scatter": (size - 1) / size, "all_gather": size - 1}[
        kind
    ] * count


def _judge(sent: Sequence[int], ranks: Sequence[int], least: float, size: int, what: str) -> None:
    _visible(sent, least)
    most = max(sent)
    if most <= CHANGE * least + 4096 * len(ranks):
        return
    raise Finding(
        Diagnosis(
            f"{what}: rank {ranks[sent.index(most)]} sent {most:,} bytes, but needs no more than {least:,.0f} for its "
            f"{size:,} bytes among {len(ranks)} ranks",
            _why(sent, least, size),
            "how much of the array each step sends, and in which dtype",
            tuple(f"rank {rank} sent {count:,} bytes" for rank, count in zip(ranks, sent, strict=True)),
        )
    )


def _why(sent: Sequence[int], least: float, size: int) -> str:
    most, world = max(sent), len(sent)
    if most > 1.5 * sorted(sent)[-2] and world > 2:
        return "everything goes through one rank, which sends the whole result to each of the others"
    near = [
        (2 * (world - 1) * size, "every step of the ring sends the whole array, not its share"),
        ((world - 1) * size, "every rank sends its whole array to every other one"),
        (2 * least, "everything is sent twice, or in a dtype twice as wide"),
    ]
    fits = [words for count, words in near if abs(most - count) < 0.03 * count]
    return "; or ".join(fits) or f"{most / least:.3g} x the least"


def _visible(sent: Sequence[int], least: float) -> None:
    """CannotTell if not even half of what must be sent in all was seen."""
    if sum(sent) < len(sent) * least / 2:
        raise CannotTell(
            f"only {sum(sent):,} of some {len(sent) * least:,.0f} bytes were seen on TCP connections: the data go another way"
        )


_MODEL = ModelSpec((Linear("fc", 64, 511),), "linear")
_WINDOW = 2


def _training(world_size: int) -> Job:
    """Sent before and after: a synchronised backward, two inside no_sync, and the one that ends this window."""
    samples = tuple((rank,) for rank in range(world_size))
    window: list[Operation] = [Backward(samples, sync=False)] * _WINDOW
    counted: list[Operation] = [Backward(samples), ZeroGrad(), Sent(), Backward(samples), Sent(), ZeroGrad()]
    counted += [*window, Sent(), Backward(samples), Sent()]
    return Job(world_size, tuple(counted), model=_MODEL, data=DataSpec(world_size))


def _gradient_bytes(job: Job) -> int:
    assert job.model is not None
    return sum(array.nbytes for array in job.initial(0).values())


def _once(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    size, ranks = _gradient_bytes(job), range(job.world_size)
    for at, name in ((0, "a synchronised backward"), (2, "the backward that ends a window of no_sync")):
        sent = [counts[at] for counts in sent_between(trace)]
        _judge(sent, ranks, _least("all_reduce", job.world_size, size), size, name)


def _silent(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    counted = sent_between(trace)
    size = _gradient_bytes(job)
    _visible([counts[0] for counts in counted], _least("all_reduce", job.world_size, size))
    for rank, (synchronised, inside, _) in enumerate(counted):
        if inside > size // 8:
            raise Finding(
                Diagnosis(
                    f"rank {rank} sent {inside:,} bytes in {_WINDOW} backwards inside no_sync, but should have sent next to "
                    f"nothing; a synchronised backward sends {synchronised:,}",
                    "gradients are reduced inside no_sync as well, and what comes back is thrown away"
                    if inside > _WINDOW * synchronised * 0.9
                    else "something of the size of the gradients is sent inside no_sync",
                )
            )
