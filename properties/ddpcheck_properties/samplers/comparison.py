"""Judges of samplers: whether the ranks' indices fit together, and if not, the likeliest cause."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import samplers as causes
from ddpcheck.contract import Capabilities
from ddpcheck.counted_nouns import counted
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.samplers import (
    OF_A_LOST_HEAD,
    OF_ABSENT_SAMPLES,
    OF_ANOTHER_LEN,
    OF_ANOTHER_LENGTH,
    OF_ANOTHER_TOTAL,
)
from ddpcheck.hypotheses.samplers.orders import OtherLen
from ddpcheck.hypotheses.samplers.shares import AbsentSamples, OtherLength, OtherTotal
from ddpcheck.job import Job, Sample
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..judges import Judge


def reading(trace: Trace, position: int) -> list[list[Array]]:
    """Each rank's samples in every epoch read."""
    found: list[list[Array]] = trace.values(position, "epochs")
    return found


def orders(trace: Trace, position: int) -> list[list[list[int]]]:
    """The samples of all ranks for every epoch."""
    return [[order.tolist() for order in epoch] for epoch in zip(*reading(trace, position), strict=True)]


def some(order: Array) -> str:
    return f"{order[:8].tolist()}"[:-1] + (", ...]" if len(order) > 8 else "]")


def may_be_chance(order: list[list[int]]) -> bool:
    """Whether few shuffled blocks may ascend on every rank by chance: one order of p blocks in p! does."""
    pieces = [1 + int((np.diff(each[:-1]) != 1).sum()) for each in order]
    return min(pieces) > 1 and math.prod(map(math.factorial, pieces)) < 10**12


def len_is_right(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    (read,) = job.operations
    assert isinstance(read, Sample)
    for rank, epochs in enumerate(reading(trace, 0)):
        first, given = len(epochs[0]), len(epochs[-1])
        before, length = (trace.values(0, name)[rank] for name in ("length_before", "length"))
        cause = first_cause(OF_ANOTHER_LEN, OtherLen(before, first))
        assertions.equal(length, given, f"len(sampler) of {named(read)}, which gave {given} samples,", rank, cause)
        what = f"len(sampler) of {named(read)} before it was read"
        assertions.equal(before, first, what, rank, causes.LENGTH_LATE())


def named(read: Sample) -> str:
    return counted(read.length, "sample") + " with drop_last" * read.drop_last + " unshuffled" * (not read.shuffle)


def shared_out(promised: Capabilities) -> Judge:
    """A judge: every reading of every sampler fits the remainder rule."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        for position, read in enumerate(job.operations):
            assert isinstance(read, Sample)
            rule = "drop" if read.drop_last else promised.sampler.remainder
            found = orders(trace, position)
            earlier = job.operations[:position]
            after_others = any(isinstance(other, Sample) and other.seed != read.seed for other in earlier)
            for number, ranks in enumerate(found):
                what = f"{named(read)}, reading {number} (epoch {read.epochs[number]})"
                _check_lengths(ranks, read.length, rule, what, number)
                _check_shares(ranks, read, what, _behind(found, number, read), after_others=after_others)

    return judge


def _behind(found: list[list[list[int]]], number: int, read: Sample) -> tuple[int, ...]:
    """The ranks, some and not all, that repeat the indices of another epoch; empty if there are none."""
    ranks, epoch = found[number], read.epochs[number]
    earlier = [each for each, told in zip(found[:number], read.epochs, strict=False) if told != epoch]
    again = [rank for rank, order in enumerate(ranks) if len(order) > 3 and order in [each[rank] for each in earlier]]
    return tuple(again) if len(again) < len(ranks) else ()


def _check_shares(
    ranks: list[list[int]], read: Sample, what: str, behind: tuple[int, ...], *, after_others: bool
) -> None:
    length = read.length
    holders: dict[int, list[int]] = {}
    for rank, order in enumerate(ranks):
        for index in order:
            holders.setdefault(index, []).append(rank)
    total = sum(map(len, ranks))
    absent = sorted(set(range(length)) - holders.keys())
    shared = sorted(index for index, found in holders.items() if len(found) > 1)
    allowed = max(0, length - total)  # the samples that drop leaves out
    if 0 in absent and not read.shuffle and 0 < total < length == total + len(absent):
        raise Finding(
            Diagnosis(
                f"{what}: sample 0 went to no rank, but should be the first; of {length} samples the last {len(absent)} may be "
                "left out",
                first_cause(OF_A_LOST_HEAD, ranks),
            )
        )
    if len(absent) > allowed:
        evidence = AbsentSamples(ranks, read, absent, behind, bool(shared), after_others)
        twice = f", and sample {shared[0]} went to ranks {', '.join(map(str, holders[shared[0]]))}" if shared else ""
        raise Finding(
            Diagnosis(
                f"{what}: sample {absent[-1]} went to no rank{twice}; {len(absent)} of {length} samples are missing, but "
                f"should be {allowed}",
                first_cause(OF_ABSENT_SAMPLES, evidence),
            )
        )


def _check_lengths(ranks: list[list[int]], length: int, rule: str, what: str, number: int) -> None:
    world = len(ranks)
    low, high = length // world, -(-length // world)
    wanted = {"drop": (low, low), "pad": (high, high), "uneven": (low, high)}[rule]
    for rank, order in enumerate(ranks):
        if wanted[0] <= len(order) <= wanted[1]:
            continue
        should = " or ".join(map(str, sorted(set(wanted))))
        raise Finding(
            Diagnosis(
                f"{what}: rank {rank} got {len(order)} samples, but should get {should} (remainder rule: {rule})",
                first_cause(OF_ANOTHER_LENGTH, OtherLength(ranks, rank, length, rule, number)),
            )
        )
    if rule == "uneven" and (total := sum(map(len, ranks))) != length:
        raise Finding(
            Diagnosis(
                f"{what}: all ranks together got {total} samples, but should get {length}",
                first_cause(OF_ANOTHER_TOTAL, OtherTotal(world, length, total)),
            )
        )
