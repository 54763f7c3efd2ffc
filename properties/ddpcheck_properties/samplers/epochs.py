"""Samplers from epoch to epoch: each order is new, and other reads, or partial ones, do not change it.

As in sampler_jobs.py, lengths are such that chance does not matter: of 40 W samples in two random orders, half keep a
neighbour with probability below 1e-30, and a fifth keep their places in five orders with less.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import Cause, randomness
from ddpcheck.causes import samplers as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Job, Sample
from ddpcheck.trace import Trace

from ..drawing import for_each
from .comparison import orders, reading, some
from .sampler_jobs import EPOCHS, SEED, shuffled

if TYPE_CHECKING:
    from ddpcheck.session import Session

SUMMED_EPOCHS = (*range(9), 10, 16, 32, 64, 100, 128, 256, 1000, 1024)
Pairs = set[tuple[int, int]]


@law("sampler", needs.sampler, needs.sampler.shuffles, needs.sampler.distinct_streams)
def check_sampler_does_not_add_seed_and_epoch(session: Session) -> None:
    """No two pairs of seed and epoch have the same order; in particular, (seed, epoch + 1) and (seed + 1, epoch) differ.
    Runs with different seeds are independent.
    """
    world = session.world_size
    joined = 10 * SEED + 1 - SEED  # followed by "0" it reads as the seed does followed by epoch 10
    steps = sorted({0, 1, 2, 10, 16, 31, 100, joined, 1000, 1024, 10_000, world})
    length = shuffled(world)
    reads = tuple(Sample(length, (0,) if step else SUMMED_EPOCHS, seed=SEED + step) for step in steps)
    for_each(session, [Job(world, reads)], _no_two_alike)


@law("sampler", needs.sampler, needs.sampler.shuffles)
def check_every_epoch_is_shuffled_independently(session: Session) -> None:
    """An epoch's order is neither a rotation nor a reversal of another epoch's, and no part of the samples keeps its place."""
    world = session.world_size
    for_each(session, [Job(world, (Sample(shuffled(world), EPOCHS, seed=SEED),))], _shuffled_anew)
    for_each(session, [Job(world, (Sample(shuffled(world), tuple(range(16)), seed=SEED),))], _every_sample_moves)


@law("sampler", needs.sampler)
def check_interrupted_epoch_restarts_in_full(session: Session) -> None:
    """After some samples are read and the epoch restarts, every rank gets the whole epoch, however far each rank had read."""
    world = session.world_size
    _as_undisturbed(
        session,
        [{"peeks": (3,) * world}, {"peeks": tuple(range(1, world + 1))}],
        "after a part of it was read",
        causes.BROKEN_EPOCH_RUNS_ON(),
    )


@law("sampler", needs.sampler)
def check_last_set_epoch_call_wins(session: Session) -> None:
    """After several set_epoch() calls before a read, as in a loop that resumes, a sampler has the order of the last epoch
    set.
    """
    _as_undisturbed(
        session,
        [{"retold": True}],
        "after it was told another epoch",
        causes.FIRST_SET_EPOCH_STAYS(),
    )


@law("sampler", needs.sampler, needs.sampler.shuffles, needs.sampler.drop_last, needs.ranks(2))
def check_drop_last_does_not_always_drop_the_same_samples(session: Session) -> None:
    """Every sample is seen in some epoch: samples that drop_last drops in one epoch appear in others."""
    world = session.world_size
    length = shuffled(world) + world - 1
    for_each(session, [Job(world, (Sample(length, tuple(range(12)), seed=SEED, drop_last=True),))], _left_out_in_turn)


@law("sampler", needs.sampler)
def check_samplers_do_not_share_state(session: Session) -> None:
    """A sampler's order does not depend on another sampler that is read meanwhile, such as a longer validation sampler."""
    _as_undisturbed(
        session,
        [{"beside": True}],
        "with another sampler beside it",
        causes.SAMPLERS_SHARE_STATE(state="order or generator"),
    )


def _as_undisturbed(session: Session, ways: list[dict[str, object]], what: str, cause: Cause) -> None:
    """Check that a sampler used in each of these ways gives the indices of a new sampler that is only read."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        read = job.operations[0]
        assert isinstance(read, Sample)
        for rank, (wanted, got) in enumerate(zip(reading(trace, 0), reading(trace, 1), strict=True)):
            for epoch, order, should in zip(read.epochs, got, wanted, strict=True):
                assertions.that(
                    bool(np.array_equal(order, should)),
                    f"epoch {epoch} {what}, on rank {rank}: got {len(order)} samples {some(order)}, but should be "
                    f"{len(should)}, {some(should)}, as in a new sampler",
                    cause,
                )

    world = session.world_size
    jobs = []
    for shuffle in (True, False):
        plain = Sample(shuffled(world) - 1, (0, 1, 0), shuffle, SEED)
        used = [Sample(plain.length, plain.epochs, shuffle, SEED, **way) for way in ways]  # type: ignore[arg-type]  # its fields
        jobs += [Job(world, (plain, one)) for one in used]
    for_each(session, jobs, judge)


def _left_out_in_turn(job: Job, trace: Trace) -> None:
    """W - 1 of more than 40 W samples are left out alike in twelve epochs with a probability below 81^-11 < 1e-20."""
    assertions.completed(trace)
    (read,) = job.operations
    assert isinstance(read, Sample)
    found = orders(trace, 0)
    never = set(range(read.length)).difference(*(samples for order in found for samples in order))
    assertions.that(
        len(never) < job.world_size - 1
        or found[0] == found[1],  # another check tests whether set_epoch() has an effect
        f"{read.length} samples with drop_last: got the samples {sorted(never)} on no rank in any of {len(found)} epochs, but "
        "should get each in some",
        causes.CUT_BEFORE_SHUFFLE(),
    )


def _no_two_alike(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    seen: dict[str, tuple[int, int]] = {}
    for position, read in enumerate(job.operations):
        assert isinstance(read, Sample)
        for epoch, order in zip(read.epochs, orders(trace, position), strict=True):
            source = read.seed, epoch or 0
            first = seen.setdefault(str(order), source)
            assertions.that(
                first == source or first[0] == source[0],  # another check compares the epochs of one seed
                f"seed {source[0]}, epoch {source[1]}: got the order of seed {first[0]}, epoch {first[1]}, on every rank, but "
                "should be another one",
                randomness.SEED_IS_SUM(parts=("seed", "epoch")),
            )


def _shuffled_anew(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    found = orders(trace, 0)
    world = job.world_size
    fixed = [np.array(order) for order in zip(*found, strict=True)] if found else []  # per rank: epochs x places
    staying = sum(int((epochs == epochs[0]).all(axis=0).sum()) for epochs in fixed)
    count = sum(map(len, found[0]))
    assertions.that(
        5 * staying < count
        or all(order == found[0] for order in found),  # another check tests whether set_epoch() has an effect
        f"{staying} of {count} samples on all ranks: got the same place in each of {len(found)} epochs, but should move",
        causes.PARTLY_SHUFFLED(),
    )
    neighbours = [_neighbours(order, world) for order in found]
    for (first, one), (second, other) in combinations(zip(EPOCHS, neighbours, strict=True), 2):
        assertions.that(
            2 * len(one & other) <= max(len(one), len(other), count // 2) or found[0] == found[1],
            f"epoch {second}: got {len(one & other)} of {count} samples next to the one that they followed in epoch {first} on "
            "some rank, but should be a new order",
            causes.ONE_ORDER_MOVED(),
        )


def _every_sample_moves(job: Job, trace: Trace) -> None:
    """Of 40 W samples one has its place in all of 16 orders with a probability below 40^-14 < 1e-22; of five whole blocks one
    has with 5^-14 < 1e-9.
    """
    assertions.completed(trace)
    found = [[index for order in ranks for index in order] for ranks in orders(trace, 0)]
    places = [place for place, *_ in enumerate(found[0]) if len({order[place] for order in found}) == 1]
    assertions.that(
        not places
        or all(order == found[0] for order in found),  # another check tests whether set_epoch() has an effect
        f"sample {', '.join(str(found[0][place]) for place in places[:3])}: got the same place, on the same rank, in each of "
        f"{len(found)} epochs, but should move",
        causes.ENDS_NOT_SHUFFLED(samples=tuple(found[0][place] for place in places)),
    )


def _neighbours(ranks: list[list[int]], world: int) -> Pairs:
    """Samples that are read one after the other, except neighbours in the data, because samplers may keep blocks whole."""
    pairs = {(min(a, b), max(a, b)) for order in ranks for a, b in pairwise(order)}
    return {(a, b) for a, b in pairs if b - a not in (1, world)}
