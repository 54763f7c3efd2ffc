"""Samplers: every sample to exactly one rank, in an order that seed and epoch decide.

A shuffle that is right may by chance give the order that a check takes for a fault. Orders of SHUFFLED(W) = 40 W samples are
compared: two random ones are equal with probability 1/(40 W)! < 1e-47, the samples of one rank are the same set with
1/C(40 W, 40), below 1e-23 for W >= 2, and all ranks' lists turn once at most with less than (2^42/40!)^W < 1e-35. Thousands
of draws stay far below 1e-9.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.job import Job, Sample
from ddpcheck.trace import Trace

from ..drawing import Judge, for_all, for_each
from ..strategies_collectives import sample_lengths, samples
from .judges import len_is_right, neighbours, orders, reading, shared_out, some

if TYPE_CHECKING:
    from ddpcheck.session import Session

PAST_16_BITS = 70_001
PAST_24_BITS = ((1 << 24), (1 << 24) + 1)  # alike in float32
LARGEST = ((1 << 32) - 1, (1 << 32) - 2)  # what NumPy's older generators take: with an epoch added it is too large
SEED = 42
EPOCHS = (2, 0, 1, 3, 12, 102, 258, 1002, 2048, 2049, (1 << 16) + 2)
"""First forwards, then back; equal to an earlier one in their lowest digits, or in their lowest eight, or sixteen, bits; or
next to it where float16 leaves one out. Larger ones would take long where a generator is run on epoch by epoch.
"""
SEEDS = (SEED, SEED + 1, 0, 1, 7, 7 + (1 << 16), 7 + (1 << 31), *PAST_24_BITS, 123, 1234, 1337, 2147483647)
"""0, what often stands in its place, and what is alike in some bits, in float32, or by a prime that generators count to."""


def shuffled(world_size: int) -> int:
    """A length at which chance does not matter; all ranks get 40 samples."""
    return 40 * world_size


@law("sampler", "facet:sampler")
def check_every_sample_goes_to_one_rank(session: Session) -> None:
    """In every epoch the ranks' samples are disjoint and complete, but for what the declared remainder rule allows."""
    _shares(session, drop_last=False)


@law("sampler", "facet:sampler", "drop_last")
def check_drop_last_cuts_the_tail_only(session: Session) -> None:
    """With drop_last every rank gets length // W different samples."""
    _shares(session, drop_last=True)


@law("sampler", "facet:sampler")
def check_len_is_what_iteration_gives(session: Session) -> None:
    """len(sampler) is the number of indices that iteration gives, on every rank."""
    world, promised = session.world_size, session.capabilities
    lengths = sample_lengths(world, promised)
    drops = (False, True) if promised.drop_last else (False,)
    # what is not shuffled may be another class
    jobs = [
        _reads(world, length, epochs=(0, 1), shuffle=shuffle, drop_last=drop)
        for shuffle in (True, False)
        for length in lengths
        for drop in drops
    ]
    for_each(session, jobs, len_is_right)


@law("sampler", "facet:sampler")
def check_reading_again_without_set_epoch_still_shares_out_all_samples(session: Session) -> None:
    """Read twice without set_epoch, each time the ranks' samples fit together: they agree on the order."""
    promised = session.capabilities
    drawn = samples(session.world_size, promised, epochs=((None, None), (3, None), (None, 2, None)))
    examples = [_reads(session.world_size, epochs=(None, None))]
    drawn_jobs = drawn.map(lambda read: Job(session.world_size, (read,)))
    for_all(session, drawn_jobs, shared_out(promised), examples=examples, share=0.5)


@law("sampler", "facet:sampler", "shuffles")
def check_set_epoch_changes_the_order(session: Session) -> None:
    """Every epoch has an order of its own, in whatever sequence epochs are asked for."""

    def judge(job: Job, trace: Trace) -> None:
        found = orders(trace, 0)
        (read,) = job.operations
        assert isinstance(read, Sample)
        everywhere = all(order == found[0] for order in found)
        cause = (
            "set_epoch() has no effect"
            + (
                ": it is not forwarded to what shuffles, or not used there"
                if read.seed
                else " with a seed of 0: it is a factor, or taken for none"
            )
            if everywhere
            else "set_epoch() does not take every number: epochs are counted round, in pairs, or forwards only, or 0 is "
            "taken for none"
        )
        for (first, order), (second, other) in combinations(zip(EPOCHS, found, strict=True), 2):
            headline = f"epoch {second}: got the order of epoch {first} on every rank, but should be another one"
            expect.that(order != other, headline, cause)

    # a seed of 0 is a factor that takes all others with it, or taken for none
    _read(session, [_reads(session.world_size, epochs=EPOCHS, seeds=(seed,)) for seed in (SEED, 0)], judge)


@law("sampler", "facet:sampler", "shuffles", "world_size>=2")
def check_samples_change_ranks_between_epochs(session: Session) -> None:
    """Shuffling mixes samples across ranks: a rank does not get the same subset in every epoch."""

    def judge(job: Job, trace: Trace) -> None:
        for rank, (first, second) in enumerate(reading(trace, 0)):
            expect.that(
                set(first.tolist()) != set(second.tolist()),
                f"epoch 1 on rank {rank}: got the same {len(first)} samples as in epoch 0, but should be others",
                "the order of epoch 0 is only reversed, or begun elsewhere"
                if neighbours(first) == neighbours(second)
                else "samples are dealt to the ranks first, and only shuffled within each rank's share",
            )

    _read(session, [_reads(session.world_size, epochs=(0, 1))], judge)


@law("sampler", "facet:sampler")
def check_the_same_epoch_has_the_same_order_again(session: Session) -> None:
    """An epoch's order depends on seed and epoch only: not on what was read before, nor on the sampler object."""

    def judge(job: Job, trace: Trace) -> None:
        cause = "the order depends on what was read before, or on a generator that others use too"
        for rank in range(job.world_size):
            first, at_once, _, again = reading(trace, 0)[rank]
            (fresh,) = reading(trace, 1)[rank]
            for name, order in (("set again", at_once), ("read again", again), ("in a new sampler", fresh)):
                expect.that(
                    bool(np.array_equal(order, first)),
                    f"epoch 3 {name} on rank {rank}: got {some(order)}, but should be {some(first)} as before",
                    cause,
                )

    world = session.world_size
    for_each(
        session,
        [
            Job(world, (Sample(length, (3, 3, 0, 3), shuffle, SEED), Sample(length, (3,), shuffle, SEED)))
            for length in (world + 1, shuffled(world))
            for shuffle in (True, False)
        ],
        _completed(judge),
    )


@law("sampler", "facet:sampler")
def check_before_set_epoch_it_is_epoch_0(session: Session) -> None:
    """A new sampler that nobody told an epoch has the order of epoch 0, whatever other samplers were told before."""

    def judge(job: Job, trace: Trace) -> None:
        for rank in range(job.world_size):
            (told,), (untold,), (zero,) = (reading(trace, position)[rank] for position in range(3))
            stale = len(told) > 1 and np.array_equal(untold, told) and not np.array_equal(told, zero)
            expect.that(
                bool(np.array_equal(untold, zero)),
                f"a new sampler, before set_epoch, on rank {rank}: got {some(untold)}, but should be {some(zero)}, the "
                "order of epoch 0",
                "it is the epoch that another sampler was told: samplers share their state"
                if stale
                else "epochs are counted from another number than 0, or there is another generator before set_epoch",
            )

    world = session.world_size
    lengths = (world + 1, shuffled(world))
    _read(
        session,
        [
            Job(world, tuple(Sample(length, (epoch,), shuffle, SEED) for epoch in (5, None, 0)))
            for length in lengths
            for shuffle in (True, False)
        ],
        judge,
    )


@law("sampler", "facet:sampler", "shuffles")
def check_the_seed_changes_the_order(session: Session) -> None:
    """Samplers with different seeds have different orders in the same epoch."""

    def judge(job: Job, trace: Trace) -> None:
        found = [(read.seed, orders(trace, position)[0]) for position, read in enumerate(job.operations)]  # type: ignore[union-attr]  # they are Samples
        everywhere = all(order == found[0][1] for _, order in found)
        for (first, order), (second, other) in combinations(found, 2):
            natural = all(each == sorted(each) for each in order)
            expect.that(
                order != other,
                f"seed {second}: got the order of seed {first} on every rank, but should be another one",
                "nothing is shuffled in epoch 0: it is taken for none"
                if natural
                else "the seed is ignored"
                if everywhere
                else "a seed of 0 is taken for none, and another put in its place"
                if 0 in (first, second) and max(first, second) < 1 << 16
                else "the seed is not used whole: it is cut, or rounded, to fewer bits",
            )

    world = session.world_size
    _read(session, [_reads(world, seeds=SEEDS), _reads(world, epochs=(1,), seeds=LARGEST)], judge)


@law("sampler", "facet:sampler")
def check_without_shuffle_the_order_is_natural(session: Session) -> None:
    """With shuffle=False every rank's samples ascend, and are the same in every epoch."""

    def judge(job: Job, trace: Trace) -> None:
        for rank, (first, second) in enumerate(reading(trace, 0)):
            expect.that(
                bool(np.all(np.diff(first) > 0)),
                f"shuffle=False on rank {rank}: got {some(first)}, but should be an ascending order",
                "the natural order is turned round"
                if np.all(np.diff(first) < 0)
                else "shuffle=False is lost on the way: the order is a random one",
            )
            expect.that(
                bool(np.array_equal(first, second)),
                f"shuffle=False, epoch 1 on rank {rank}: got {some(second)}, but should be {some(first)} as in epoch 0",
                "the order depends on the epoch though nothing is shuffled",
            )

    world = session.world_size
    reads = [_reads(world, length, epochs=(0, 1), shuffle=False) for length in (3 * world, world, shuffled(world))]
    _read(session, reads, judge)


@law("sampler", "facet:sampler", "shuffles")
def check_shuffle_really_shuffles(session: Session) -> None:
    """With shuffle=True the order is a random one: not the natural one, nor that reversed, or begun elsewhere."""

    def judge(job: Job, trace: Trace) -> None:
        ascending = [bool(np.all(np.diff(order) > 0)) for (order,) in reading(trace, 0)]
        expect.that(
            not all(ascending),
            f"shuffle=True: got ascending samples on every rank ({some(reading(trace, 0)[0][0])} on rank 0), but should "
            "be a random order",
            "shuffle=True is lost on the way",
        )
        steps = [np.diff(order) for (order,) in reading(trace, 0)]
        expect.that(
            not all(min((step > 0).sum(), (step < 0).sum()) <= 1 for step in steps),
            f"shuffle=True: got samples that turn once at most on every rank ({some(reading(trace, 0)[0][0])} on rank 0), "
            "but should be a random order",
            "the natural order is only reversed, or begun at a random sample",
        )

    _read(session, [_reads(session.world_size)], judge)


def _shares(session: Session, *, drop_last: bool) -> None:
    world, promised = session.world_size, session.capabilities
    telling = 3 * world + 1, 3 * world  # first, as of a few samples a wrong share looks like many another one
    examples = [
        _reads(world, length, shuffle=shuffle, drop_last=drop_last)
        for length in (*telling, *(each for each in sample_lengths(world, promised) if each not in telling))
        for shuffle in (False, True)
    ]
    examples += [_reads(world, length, drop_last=drop_last) for length in (1025, 4099, PAST_16_BITS)]
    examples += [_reads(world, epochs=EPOCHS, seeds=(SEED, 0), drop_last=drop_last)]  # where ranks may part further on
    drawn = samples(world, promised, drop_last=drop_last).map(lambda read: Job(world, (read,)))
    for_all(session, drawn, shared_out(promised), examples=examples)


def _reads(
    world_size: int,
    length: int | None = None,
    *,
    epochs: tuple[int | None, ...] = (0,),
    shuffle: bool = True,
    seeds: tuple[int, ...] = (SEED,),
    drop_last: bool = False,
) -> Job:
    """One sampler for each seed, read for these epochs."""
    length = shuffled(world_size) if length is None else length
    return Job(world_size, tuple(Sample(length, epochs, shuffle, seed, drop_last) for seed in seeds))


def _completed(judge: Judge) -> Judge:
    def both(job: Job, trace: Trace) -> None:
        expect.completed(trace)
        judge(job, trace)

    return both


def _read(session: Session, jobs: list[Job], judge: Judge) -> None:
    for_each(session, jobs, _completed(judge))
