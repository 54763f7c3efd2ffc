"""Ranks that make different calls: none continues with wrong results, and every rank gets an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.ranks import OF_UNNOTICED_MISMATCH
from ddpcheck.job import (
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Job,
    Operation,
    ReduceScatter,
    SendRecv,
    TensorSpec,
    Wait,
)
from ddpcheck.operations.probes import OnRanks
from ddpcheck.trace import RankTrace, Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..collectives.all_reduce import PAST_64_KIB
from ..collectives.names import described
from ..drawing import for_each
from ..strategies_collectives import Reduction, dtypes, fitting_reductions, floating, reductions, usual_reduction
from .rank_findings import finding_about

if TYPE_CHECKING:
    from ddpcheck.session import Session


class Pair(NamedTuple):
    """The call of most ranks, and the different call of one rank; crossed: that rank makes both calls in the other
    order.
    """

    usual: Operation
    odd: Operation
    crossed: bool = False


MANY = 100
"""From this number of drawn Jobs on, a check has time for all pairs."""
APART = 1
"""Position in a Job of _jobs of the operation that differs."""


@law("failures", needs.collectives.operations("all_reduce"), needs.world.detects_mismatch, needs.ranks(2))
def check_mismatched_arrays_raise_on_every_rank(session: Session) -> None:
    """Every rank raises when one rank's array has another dtype or size, even if both have the same number of bytes. This
    also holds in a group and asynchronously.
    """
    world, promised = session.world_size, session.capabilities
    reduction = reductions(promised)[0]
    first, *others = _floats_first(promised)
    usual, large = TensorSpec((20 * world,), first, "powers"), TensorSpec(PAST_64_KIB, first, "powers")
    shorter = replace(usual, shape=(19 * world,))
    alike = [_of_as_many_bytes(usual, dtype) for dtype in others]
    calls = _promised_calls(world, promised)
    order = [  # the first seven are those of the default profile
        ("all_reduce", alike[-1:]),
        ("send_recv", alike[:1]),
        ("all_reduce", [shorter]),
        ("group", alike[:1]),
        ("broadcast", [shorter]),
        ("asynchronous", [shorter]),
        ("all_gather", [shorter]),
        ("send_recv", [shorter]),
        ("broadcast", alike[:1]),
        ("reduce_scatter", [shorter]),
        ("all_gather", alike[:1]),
        ("all_reduce", alike[:-1]),
    ]
    pairs = [Pair(calls[kind](usual), calls[kind](odd)) for kind, odds in order if kind in calls for odd in odds]
    odds = [
        replace(large, shape=(PAST_64_KIB[0], PAST_64_KIB[1] + 1)),
        *[replace(large, dtype=each) for each in others[:1]],
    ]
    pairs += [Pair(AllReduce(large, reduction), AllReduce(odd, reduction)) for odd in odds]
    for_each(session, _jobs(session, _some(session, pairs)), _raises_everywhere)


@law("failures", needs.collectives.operations("all_reduce"), needs.world.detects_mismatch, needs.ranks(2))
def check_mismatched_calls_raise_on_every_rank(session: Session) -> None:
    """Every rank raises when one rank uses another collective, reduction or root, or makes one extra call."""
    promised, last = session.capabilities, session.world_size - 1
    tensor = TensorSpec((2 * session.world_size,), dtypes(promised)[0], "powers")
    among = fitting_reductions(promised, tensor.dtype) or list(reductions(promised))
    usual = AllReduce(tensor, among[0])
    offered = _alike(among)
    others: list[tuple[Operation, Operation]] = [
        (usual, Broadcast(tensor)),
        (Broadcast(tensor, 0), Broadcast(tensor, last)),
        (usual, Barrier()),
        *((replace(usual, reduction=one), replace(usual, reduction=other)) for one, other in offered),
        (AllGather(tensor), usual),
        *((ReduceScatter(tensor, one), ReduceScatter(tensor, other)) for one, other in offered[:1]),
        (usual, ReduceScatter(tensor, among[0])),
        (Barrier(), usual),
    ]
    pairs = [Pair(a, b) for a, b in others if a != b and {a.kind, b.kind} <= promised.collectives.operations]
    for_each(session, _jobs(session, _some(session, pairs)), _raises_everywhere)


@law("failures", needs.collectives.operations("all_reduce"), needs.world.detects_mismatch, needs.ranks(2))
def check_asynchronous_or_group_mismatches_raise_on_every_rank(session: Session) -> None:
    """Every rank raises when one rank's asynchronous or group call differs in collective, reduction, root, order, dtype or
    size. This also holds for asynchronous calls in a group.
    """
    world, promised = session.world_size, session.capabilities
    dtype, *others = _floats_first(promised)
    tensor = TensorSpec((20 * world,), dtype, "powers")
    shorter = replace(tensor, shape=(19 * world,))
    alike = [_of_as_many_bytes(tensor, each) for each in others[:1]]
    among = fitting_reductions(promised, dtype) or list(reductions(promised))
    # a group of some ranks leaves innocent ranks waiting in the next call
    every = tuple(range(world))
    begun, within = AllReduce(tensor, among[0], wait=False), AllReduce(tensor, among[0], every)
    both = replace(begun, group=every)
    (one, other), *rest = _alike(among)
    pairs = [  # at two ranks the first two run in the default profile, at three the next, at four those after
        Pair(replace(begun, reduction=one), replace(begun, reduction=other)),
        Pair(replace(within, reduction=one), replace(within, reduction=other)),
        Pair(begun, replace(begun, tensor=shorter), crossed=True),
        Pair(Broadcast(tensor, 0, every), Broadcast(tensor, world - 1, every)),
        *(Pair(begun, replace(begun, tensor=each)) for each in alike),
        Pair(AllGather(tensor, every), AllGather(shorter, every)),
        Pair(begun, Broadcast(tensor)),
        *(Pair(replace(begun, reduction=a), replace(begun, reduction=b)) for a, b in rest),
        *(Pair(replace(within, reduction=a), replace(within, reduction=b)) for a, b in rest),
        *(Pair(within, replace(within, tensor=each)) for each in (shorter, *alike)),
        Pair(within, Barrier(every)),
        Pair(begun, replace(begun, tensor=shorter)),
        Pair(ReduceScatter(tensor, one, every), ReduceScatter(tensor, other, every)),
        Pair(replace(both, reduction=one), replace(both, reduction=other)),
        Pair(both, replace(both, tensor=shorter)),
    ]
    offered = [pair for pair in pairs if _is_offered(pair, promised)]
    begin = world - 1 if world > 2 else 0
    count = len(offered) if session.effort >= MANY else max(1 + (world == 2), session.effort // 12)
    for_each(session, _jobs(session, (offered[begin:] + offered[:begin])[:count]), _raises_everywhere)


def _promised_calls(world: int, promised: Capabilities) -> dict[str, Callable[[TensorSpec], Operation]]:
    """Makers of a call on an array, by collective or form of the call."""
    reduction = reductions(promised)[0]
    calls: dict[str, Callable[[TensorSpec], Operation]] = {
        "all_reduce": lambda tensor: AllReduce(tensor, usual_reduction(promised, tensor.dtype)),
        "group": lambda tensor: AllReduce(tensor, reduction, (0, world - 1)),
        "asynchronous": lambda tensor: AllReduce(tensor, reduction, wait=False),
        "broadcast": Broadcast,
        "all_gather": AllGather,
        "reduce_scatter": lambda tensor: ReduceScatter(tensor, reduction),
        "send_recv": lambda tensor: SendRecv(tensor, ((0, world - 1),)),
    }
    offered = {
        *promised.collectives.operations,
        *["group"] * promised.has(CallForm.SUBGROUPS),
        *["asynchronous"] * promised.has(CallForm.ASYNCHRONOUS),
    }
    return {kind: make for kind, make in calls.items() if kind in offered}


def _floats_first(promised: Capabilities) -> list[str]:
    """The promised dtypes, float32 first, then the other floats."""
    return sorted(dtypes(promised), key=lambda dtype: (not floating(dtype), dtype != "float32"))


def _alike(among: Sequence[Reduction]) -> list[tuple[Reduction, Reduction]]:
    """Reductions that are easily confused: a mean sends the same messages as a sum, and a maximum the same as a
    minimum.
    """
    alike: list[tuple[Reduction, Reduction]] = [("sum", "mean"), ("min", "max")]
    return [both for both in alike if {*both} <= {*among}] or [(among[0], among[-1])]


def _is_offered(pair: Pair, promised: Capabilities) -> bool:
    """Whether both calls are promised and differ."""
    usual, odd, _ = pair
    asynchronous = isinstance(usual, AllReduce) and not usual.wait
    in_group = getattr(usual, "group", None) is not None
    ways = promised.has(CallForm.ASYNCHRONOUS) >= asynchronous and promised.has(CallForm.SUBGROUPS) >= in_group
    return usual != odd and ways and {usual.kind, odd.kind} <= promised.collectives.operations


def _of_as_many_bytes(tensor: TensorSpec, dtype: str) -> TensorSpec:
    size = tensor.shape[0] * np.dtype(tensor.dtype).itemsize // np.dtype(dtype).itemsize
    return replace(tensor, shape=(size,), dtype=dtype)


def _some(session: Session, pairs: list[Pair]) -> list[Pair]:
    """Some of the pairs, which depend on the world size, because every Job costs a start of the ranks."""
    world = session.world_size
    # at two ranks the first three run in the default profile, at three the next three, at four three from the sixth on
    begin = (2 * world - 3 if world > 2 else 0) % max(1, len(pairs))
    return (pairs[begin:] + pairs[:begin])[: max(2, session.effort // 8) + (world > 2)]


def _jobs(session: Session, chosen: list[Pair]) -> list[Job]:
    """A Job for each pair: all ranks agree, then one differs, then they make more calls."""
    world = session.world_size
    # a root, or the first sender, may notice only in the next call, and at worst receives a fitting message there, too
    before, *after = (
        AllReduce(
            TensorSpec((3,), dtypes(session.capabilities)[0], "powers", seed), reductions(session.capabilities)[0]
        )
        for seed in range(4)
    )
    made = []
    for number, (usual, odd, crossed) in enumerate(chosen):
        other = 0 if number % 2 else world - 1
        rest = tuple(rank for rank in range(world) if rank != other)
        # a rank that is not the root sends no sign of it, so some all-reduces of three or more ranks wait in a circle
        if isinstance(odd, Broadcast) and not isinstance(usual, Broadcast) and world > 2:
            odd = replace(odd, root=other)
        if isinstance(odd, Broadcast) and isinstance(usual, Broadcast) and odd.root != usual.root:
            odd, usual = replace(odd, root=other), replace(usual, root=rest[-1])
        begun = isinstance(usual, AllReduce) and not usual.wait
        parted: list[Operation] = [OnRanks(rest, usual), OnRanks((other,), odd)]
        if crossed:
            parted += [OnRanks(rest, odd), OnRanks((other,), usual)]
        waits = map(Wait, range(APART, APART + len(parted) * begun))
        made.append(Job(world, (before, *parted, *waits, *after)))
    return made


def _raises_everywhere(job: Job, trace: Trace) -> None:
    usual, odd = job.operations[APART], job.operations[APART + 1]
    assert isinstance(usual, OnRanks)
    assert isinstance(odd, OnRanks)
    crossed = isinstance(job.operations[APART + 2], OnRanks)
    calls = f"{described(odd.operation)} and the others {described(usual.operation)}"
    what = f"while rank {odd.ranks[0]} {'first ' * crossed}called {calls}"
    for rank in trace.ranks:
        if rank.outcome == "raised":
            continue
        ended = {"done": "completed all calls", "hung": "hung", "died": "died"}.get(rank.outcome, "continued")
        headline = f"rank {rank.rank} {ended} {what}; it should have raised an error"
        raise finding_about(rank, headline, *first_cause(OF_UNNOTICED_MISMATCH, trace))
    _errors_name_both(usual.operation, odd.operation, trace, what)


def _errors_name_both(usual: Operation, odd: Operation, trace: Trace, what: str) -> None:
    """At least one error names both calls."""
    said = [_message_of(rank) for rank in trace.ranks]
    for pattern, name in (*_distinctions(usual, odd), *_distinctions(odd, usual)):
        if not any(re.search(pattern, text) for text in said):
            raise Finding(
                Diagnosis(
                    f"the error on no rank names {name} {what}; one should name its own call and the other rank's",
                    details=tuple(f"rank {rank.rank}: {rank.error}" for rank in trace.ranks),
                )
            )


def _distinctions(one: Operation, other: Operation) -> list[tuple[str, str]]:
    """(pattern, name) of what distinguishes the first operation from the other: its kind, dtype, size, reduction or root."""
    if one.kind != other.kind:
        name = "send" if isinstance(one, SendRecv) else one.kind
        return [(name.replace("_", "[ _-]?"), name)]
    mine, theirs = getattr(one, "tensor", None), getattr(other, "tensor", None)
    assert isinstance(mine, TensorSpec)
    assert isinstance(theirs, TensorSpec)
    if mine.dtype != theirs.dtype:
        kind = np.dtype(mine.dtype)
        also = rf"\b{kind.kind}{kind.itemsize}\b|{_ALIASES[mine.dtype]}"  # as in NumPy's typestrings, "<f4" and "|u1"
        return [(f"{mine.dtype}|{also}", mine.dtype)]
    if mine.shape != theirs.shape:
        count = mine.on(0).size
        return [(rf"\b({count}|{count * mine.on(0).itemsize})\b|{re.escape(str(list(mine.shape))[1:-1])}", f"{count}")]
    if isinstance(one, AllReduce | ReduceScatter):
        return [(one.reduction, one.reduction)]
    root = str(getattr(one, "root", ""))
    return [(rf"\b{root}\b", f"root {root}")]


_ALIASES = {
    "float16": r"half",
    "float32": r"single|\bfloat\b",
    "float64": r"double",
    "int8": r"\bs?char\b",
    "int16": r"\bshort\b",
    "int32": r"\bint\b",
    "int64": r"\blong\b",
    "uint8": r"\bbyte\b|\buchar\b|unsigned[ _]char",
    "uint16": r"\bushort\b|unsigned[ _]short",
    "uint32": r"\buint\b|unsigned",
    "uint64": r"\bulong\b|unsigned[ _]long",
}
"""The names of the dtypes in C, MPI and torch."""


def _message_of(rank: RankTrace) -> str:
    """The error without the lines of its traceback."""
    return "\n".join(line for line in rank.error.splitlines() if not line.startswith("  ")).lower()
