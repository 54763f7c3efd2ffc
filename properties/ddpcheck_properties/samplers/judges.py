"""Judges of samplers: do the ranks' indices fit together, and what is the likeliest cause if they do not."""

from __future__ import annotations

import math

import numpy as np

from ddpcheck import expect
from ddpcheck.contract import Capabilities
from ddpcheck.job import Job, Sample
from ddpcheck.trace import Trace
from ddpcheck.values import Array
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import Judge

SAME_SHARE = (
    "every rank takes the share of one and the same rank: the rank is ignored, or it was read before it was known, when a "
    "module was imported by the process that starts the ranks"
)


def reading(trace: Trace, position: int) -> list[list[Array]]:
    """For every rank its samples in every epoch read."""
    found: list[list[Array]] = trace.values(position, "epochs")
    return found


def orders(trace: Trace, position: int) -> list[list[list[int]]]:
    """For every epoch the samples of all ranks."""
    return [[order.tolist() for order in epoch] for epoch in zip(*reading(trace, position), strict=True)]


def some(order: Array) -> str:
    return f"{order[:8].tolist()}"[:-1] + (", ...]" if len(order) > 8 else "]")


def neighbours(order: Array) -> set[tuple[int, int]]:
    """Which samples follow one another, either way round and across the end."""
    return {(min(pair), max(pair)) for pair in zip(order.tolist(), np.roll(order, 1).tolist(), strict=True)}


def may_be_chance(order: list[list[int]]) -> bool:
    """Whether few blocks of neighbours, shuffled as they lie on disk, may ascend on every rank: of p of them one order in p!."""
    pieces = [1 + int((np.diff(each[:-1]) != 1).sum()) for each in order]
    return min(pieces) > 1 and math.prod(map(math.factorial, pieces)) < 10**12


def len_is_right(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    (read,) = job.operations
    assert isinstance(read, Sample)
    for rank, epochs in enumerate(reading(trace, 0)):
        first, given = len(epochs[0]), len(epochs[-1])
        before, length = (trace.values(0, name)[rank] for name in ("length_before", "length"))
        cause = (
            "it is right before anything was read, and changes with what is read, or with the epoch"
            if before == first
            else "the length is worked out apart from the order; a loop that trusts it stops early, or waits for other ranks"
        )
        expect.equal(length, given, f"len(sampler) of {named(read)}, which gave {given} samples,", rank, cause)
        what = f"len(sampler) of {named(read)} before it was read"
        expect.equal(before, first, what, rank, "the length is known only once the order is: schedules need it before")


def named(read: Sample) -> str:
    return (
        f"{read.length} sample"
        + "s" * (read.length != 1)
        + " with drop_last" * read.drop_last
        + " unshuffled" * (not read.shuffle)
    )


def shared_out(promised: Capabilities) -> Judge:
    """A judge: every reading of every sampler fits the remainder rule."""

    def judge(job: Job, trace: Trace) -> None:
        expect.completed(trace)
        for position, read in enumerate(job.operations):
            assert isinstance(read, Sample)
            rule = "drop" if read.drop_last else promised.sampler.remainder
            found = orders(trace, position)
            for number, ranks in enumerate(found):
                what = f"{named(read)}, reading {number} (epoch {read.epochs[number]})"
                _check_lengths(ranks, read.length, rule, what, number)
                _check_shares(ranks, read, what, _behind(found, number, read))

    return judge


def _behind(found: list[list[list[int]]], number: int, read: Sample) -> str:
    """Which ranks, some and not all, read again what they have read in another epoch; empty if none does."""
    ranks, epoch = found[number], read.epochs[number]
    earlier = [each for each, told in zip(found[:number], read.epochs, strict=False) if told != epoch]
    again = [rank for rank, order in enumerate(ranks) if len(order) > 3 and order in [each[rank] for each in earlier]]
    return ", ".join(map(str, again)) if len(again) < len(ranks) else ""


def _check_shares(ranks: list[list[int]], read: Sample, what: str, behind: str) -> None:
    world, length = len(ranks), read.length
    holders: dict[int, list[int]] = {}
    for rank, order in enumerate(ranks):
        for index in order:
            holders.setdefault(index, []).append(rank)
    total = sum(map(len, ranks))
    absent = sorted(set(range(length)) - holders.keys())
    shared = sorted(index for index, found in holders.items() if len(found) > 1)
    allowed = max(0, length - total)  # what drop leaves out
    if 0 in absent and not read.shuffle and 0 < total < length == total + len(absent):
        raise Finding(
            Diagnosis(
                f"{what}: sample 0 went to no rank, but should be the first; of {length} samples the last {len(absent)} may be "
                "left out",
                "the head is cut off, and not the tail"  # type: ignore[arg-type]  # a sentence still
                if all(order == sorted(order) for order in ranks)
                else "shuffle=False is lost on the way: a random order is cut",
            )
        )
    if len(absent) > allowed:
        tail = not read.shuffle and absent == list(range(length))[-len(absent) :]
        bits = next((bits for bits in (8, 15, 16, 31) if absent == list(range(1 << bits, length))), None)
        twice = f", and sample {shared[0]} went to ranks {', '.join(map(str, holders[shared[0]]))}" if shared else ""
        raise Finding(
            Diagnosis(
                f"{what}: sample {absent[-1]} went to no rank{twice}; {len(absent)} of {length} samples are missing, but "
                f"should be {allowed}",
                f"indices of {bits} bits: those of {1 << bits} and more do not fit"  # type: ignore[arg-type]  # a sentence still
                if bits
                else SAME_SHARE
                if world > 1 and all(order == ranks[0] for order in ranks) and (not read.shuffle or len(ranks[0]) > 3)
                else f"set_epoch() has no effect on rank {behind}, which stays in an earlier epoch"
                if behind and read.shuffle
                else "a rank reads some samples twice, and others not at all: an order is cut, and put together wrongly, or "
                "samples are drawn with replacement"
                if not tail and length >= world and any(len(set(order)) < len(order) for order in ranks)
                else "the ranks do not agree on the order: each shuffles with a seed or a generator of its own"
                + (" where the seed is 0, which is taken for none" if not read.seed else "")
                + "; or samples are drawn with replacement"
                if shared and world > 1 and not tail
                else "the samples at the end of the order go to no rank",
            )
        )


def _check_lengths(ranks: list[list[int]], length: int, rule: str, what: str, number: int) -> None:
    world = len(ranks)
    low, high = length // world, -(-length // world)
    wanted = {"drop": (low, low), "pad": (high, high), "uneven": (low, high)}[rule]
    for rank, order in enumerate(ranks):
        if wanted[0] <= len(order) <= wanted[1]:
            continue
        cause = ""
        if world > 1 and len(order) > high and length > world and len(set(order)) == length:
            cause = "the rank reads the whole data set: samples are not shared out"
        elif number and not len(order):
            cause = "a second reading gives nothing: the iterator, or a generator, is used up"
        elif length % world == 0 and all(len(each) == low + 1 for each in ranks):
            cause = "a length that the world size divides is padded by a whole round"
        elif length % world == 0 and all(len(each) == low - 1 for each in ranks):
            cause = "of a length that the world size divides a whole round is cut"
        elif rule == "pad" and sum(map(len, ranks)) == 2 * length:
            cause = "what is padded is taken from the order once: so few samples must be repeated several times over"
        elif rule == "pad" and len(order) > high and len(set(order)) < len(order):
            cause = (
                "more is padded than makes the ranks' shares equal, or a rank is given what pads others' shares, too"
            )
        elif rule == "pad" and len(order) == low:
            cause = "nothing is padded: ranks run out of samples at different times, or the tail is lost"
        elif rule == "drop" and len(order) == high and sum(map(len, ranks)) == length:
            cause = (
                "nothing is cut: the ranks get lengths that differ, and those with more wait for the others at the end"
            )
        elif rule == "drop" and len(order) == high:
            cause = "the length is rounded up: the tail is padded, and not cut"
        elif rule == "uneven" and sum(map(len, ranks)) == length:
            cause = (
                "all samples are there, in shares of a length rounded up or down: what is left over is one rank's alone"
            )
        elif all(len(each) in (low // world, -(-low // world)) for each in ranks):
            cause = "a rank's share was shared out once more"
        should = " or ".join(map(str, sorted(set(wanted))))
        raise Finding(
            Diagnosis(
                f"{what}: rank {rank} got {len(order)} samples, but should get {should} (remainder rule: {rule})",
                cause,  # type: ignore[arg-type]  # a sentence still
            )
        )
    if rule == "uneven" and (total := sum(map(len, ranks))) != length:
        left_over = f"which world size {world} does not divide: the {length % world} left over"
        raise Finding(
            Diagnosis(
                f"{what}: all ranks together got {total} samples, but should get {length}",
                f"it is a length {left_over} go to no rank"  # type: ignore[arg-type]  # a sentence still
                if total == low * world < length
                else f"it is a length {left_over} are padded, as if all ranks were to get equally many"
                if length < total == high * world
                else "",
            )
        )
