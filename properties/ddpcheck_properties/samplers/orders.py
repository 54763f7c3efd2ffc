"""Samplers: seed and epoch alone decide the order."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from ddpcheck import assertions
from ddpcheck.causes import samplers as causes
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.samplers import (
    OF_AN_UNSHUFFLED_ORDER,
    OF_AN_UNTOLD_ORDER,
    OF_EQUAL_EPOCHS,
    OF_EQUAL_SEEDS,
    OF_THE_SAME_ORDER,
    OF_THE_SAME_SUBSET,
)
from ddpcheck.hypotheses.samplers.orders import EqualEpochs, EqualSeeds, SameOrder, SameSubset, UntoldOrder
from ddpcheck.job import Job, Sample
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_all, for_each
from ..judges import Judge
from ..strategies import SEEDS as ANY_SEED
from ..strategies import choice
from .comparison import may_be_chance, named, orders, reading, some
from .sampler_jobs import EPOCHS, LARGEST, PAST_16_BITS, SEED, SEEDS, reads, shuffled

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("sampler", needs.sampler, needs.sampler.shuffles, level=Level.BASIC)
def check_set_epoch_changes_the_order(session: Session) -> None:
    """Every epoch has its own order, in whatever sequence epochs are set."""

    def judge(job: Job, trace: Trace) -> None:
        found = orders(trace, 0)
        (read,) = job.operations
        assert isinstance(read, Sample)
        pairs = combinations(zip(EPOCHS, found, strict=True), 2)
        alike = [(first, second) for (first, order), (second, other) in pairs if order == other]
        for first, second in alike[:1]:
            evidence = EqualEpochs(alike, EPOCHS, read.seed)
            headline = f"epoch {second}: got the order of epoch {first} on every rank, but should be another one"
            raise Finding(Diagnosis(headline, first_cause(OF_EQUAL_EPOCHS, evidence)))

    # a seed of 0 may be a factor that removes all others, or be taken for no seed
    _read(session, [reads(session.world_size, epochs=EPOCHS, seeds=(seed,)) for seed in (SEED, 0)], judge)


@law("sampler", needs.sampler, needs.sampler.shuffles, needs.ranks(2))
def check_samples_change_ranks_between_epochs(session: Session) -> None:
    """Shuffling moves samples between ranks: no rank gets the same subset in every epoch."""

    def judge(job: Job, trace: Trace) -> None:
        for rank, (first, second) in enumerate(zip(*orders(trace, 0), strict=True)):
            assertions.that(
                set(first) != set(second),
                f"epoch 1 on rank {rank}: got the same {len(first)} samples as in epoch 0, but should be others",
                first_cause(OF_THE_SAME_SUBSET, SameSubset(first, second)),
            )

    _read(session, [reads(session.world_size, epochs=(0, 1))], judge)


@law("sampler", needs.sampler, level=Level.BASIC)
def check_sampler_order_depends_only_on_seed_and_epoch(session: Session) -> None:
    """The order depends only on seed and epoch, not on earlier reads or on the sampler object."""

    def judge(job: Job, trace: Trace) -> None:
        for rank in range(job.world_size):
            first, at_once, _, again = reading(trace, 0)[rank]
            (fresh,) = reading(trace, 1)[rank]
            for name, order in (("set again", at_once), ("read again", again), ("in a new sampler", fresh)):
                assertions.that(
                    bool(np.array_equal(order, first)),
                    f"epoch 3 {name} on rank {rank}: got {some(order)}, but should be {some(first)} as before",
                    causes.ORDER_DEPENDS_ON_READINGS(),
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


@law("sampler", needs.sampler)
def check_new_sampler_without_set_epoch_uses_epoch_0(session: Session) -> None:
    """Before any set_epoch() call, a new sampler has the order of epoch 0, whatever epochs other samplers were set to."""

    def judge(job: Job, trace: Trace) -> None:
        for rank in range(job.world_size):
            (told,), (untold,), (zero,) = (reading(trace, position)[rank] for position in range(3))
            evidence = UntoldOrder(untold.tolist(), told.tolist(), zero.tolist())
            assertions.that(
                bool(np.array_equal(untold, zero)),
                f"a new sampler, before set_epoch, on rank {rank}: got {some(untold)}, but should be {some(zero)}, the "
                "order of epoch 0",
                first_cause(OF_AN_UNTOLD_ORDER, evidence),
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


@law("sampler", needs.sampler, needs.sampler.shuffles, level=Level.BASIC)
def check_the_seed_changes_the_order(session: Session) -> None:
    """Samplers with different seeds have different orders in the same epoch."""

    def judge(job: Job, trace: Trace) -> None:
        reads_of_seeds = [read for read in job.operations if isinstance(read, Sample)]
        found = [(read.seed, orders(trace, position)[0]) for position, read in enumerate(reads_of_seeds)]
        (epoch,) = reads_of_seeds[0].epochs
        ignored = len(found) == len(SEEDS) and all(order == found[0][1] for _, order in found)
        for (first, order), (second, other) in combinations(found, 2):
            assertions.that(
                order != other,
                f"seed {second}: got the order of seed {first} on every rank, but should be another one",
                first_cause(OF_EQUAL_SEEDS, EqualSeeds(first, second, epoch or 0, order, ignored)),
            )

    world = session.world_size
    _read(session, [reads(world, seeds=SEEDS), reads(world, epochs=(1,), seeds=LARGEST)], judge)


@law("sampler", needs.sampler, level=Level.BASIC)
def check_order_without_shuffle_is_sequential(session: Session) -> None:
    """With shuffle=False, every rank's samples ascend and are the same in every epoch."""

    def judge(job: Job, trace: Trace) -> None:
        natural = orders(trace, 0)[0]
        for rank, (first, *others) in enumerate(reading(trace, 0)):
            assertions.that(
                bool(np.all(np.diff(first) > 0)),
                f"shuffle=False on rank {rank}: got {some(first)}, but should be an ascending order",
                first_cause(OF_AN_UNSHUFFLED_ORDER, natural),
            )
            for epoch, other in zip(_UNSHUFFLED[1:], others, strict=True):
                assertions.that(
                    bool(np.array_equal(first, other)),
                    f"shuffle=False, epoch {epoch} on rank {rank}: got {some(other)}, but should be {some(first)} as in epoch 0",
                    causes.UNSHUFFLED_ORDER_CHANGES(),
                )

    world = session.world_size
    cut = (3 * world + 1, shuffled(world) - 1, shuffled(world)) if session.capabilities.sampler.drop_last else ()
    lengths = [(length, False) for length in (3 * world, world, shuffled(world))] + [(length, True) for length in cut]
    jobs = [reads(world, length, epochs=_UNSHUFFLED, shuffle=False, drop_last=drop) for length, drop in lengths]
    jobs.append(reads(world, epochs=_UNSHUFFLED, shuffle=False, seeds=(0,)))  # may be taken for no seed
    _read(session, jobs, judge)


_UNSHUFFLED = (0, 1, 2, 7)


@law("sampler", needs.sampler, needs.sampler.shuffles)
def check_shuffled_order_is_random(session: Session) -> None:
    """With shuffle=True, the order is random: not the sequential order, nor its reverse or a rotation."""

    def judge(job: Job, trace: Trace) -> None:
        ascending = [bool(np.all(np.diff(order) > 0)) for (order,) in reading(trace, 0)]
        assertions.that(
            not all(ascending),
            f"shuffle=True: got ascending samples on every rank ({some(reading(trace, 0)[0][0])} on rank 0), but should "
            "be a random order",
            causes.SHUFFLE_IGNORED(),
        )
        steps = [np.diff(order) for (order,) in reading(trace, 0)]
        assertions.that(
            not all(min((step > 0).sum(), (step < 0).sum()) <= 1 for step in steps),
            f"shuffle=True: got samples that turn once at most on every rank ({some(reading(trace, 0)[0][0])} on rank 0), "
            "but should be a random order",
            causes.NATURAL_ORDER_MOVED(),
        )

    _read(session, [reads(session.world_size)], judge)


@law("sampler", needs.sampler, needs.sampler.shuffles)
def check_shuffling_uses_seed_and_epoch_at_every_length(session: Session) -> None:
    """At every number of samples, with or without drop_last, and for every seed and epoch, the order is random. Another seed
    or epoch gives another order.
    """
    world, promised = session.world_size, session.capabilities
    drops = (False, True) if promised.sampler.drop_last else (False,)
    examples = [
        reads(world, shuffled(world) + more, epochs=(2, 3), seeds=(SEED, SEED + 1), drop_last=drop)
        for drop in drops
        for more in (1, 2)
    ]
    examples.append(reads(world, PAST_16_BITS, epochs=(0, 1), seeds=(SEED, SEED + 1)))
    drawn = st.builds(
        lambda chosen, seed, seeds: reads(
            world, chosen[0], epochs=chosen[1], drop_last=chosen[2], seeds=tuple(seed + more for more in seeds)
        ),
        choice(tuple(product(_lengths(world), _TWO_EPOCHS, drops))),
        ANY_SEED,
        choice(_TWO_SEEDS),
    )
    for_all(session, drawn, _completed(_random_and_its_own), examples=examples)


_TWO_SEEDS = ((0, 1), (0, 2), (0, 1000), (1 << 31, (1 << 31) + 1), (0, 5), (5, (1 << 32) - (1 << 17)))
"""Added to a drawn seed of 16 bits."""
_TWO_EPOCHS = ((0, 1), (1, 2), (2, 3), (0, 2), (3, 4), (7, 5), (300, 260))


def _lengths(world_size: int) -> tuple[int, ...]:
    """Lengths with every remainder, even and odd."""
    return tuple(shuffled(world_size) + more for more in range(2 * world_size + 1))


def _random_and_its_own(job: Job, trace: Trace) -> None:
    found: dict[tuple[int, int | None], list[list[int]]] = {}
    for position, read in enumerate(job.operations):
        assert isinstance(read, Sample)
        for epoch, order in zip(read.epochs, orders(trace, position), strict=True):
            what = f"epoch {epoch} of {named(read)}, seed {read.seed}"
            assertions.that(
                not all(each[:-1] == sorted(each[:-1]) for each in order)  # the last may be padding
                or may_be_chance(order),
                f"{what}: got ascending samples on every rank, but should be a random order",
                causes.NOT_SHUFFLED_AT_LENGTH(length=read.length, drop_last=read.drop_last),
            )
            for (seed, other), before in found.items():
                assertions.that(
                    # another check tests whether both are added up
                    order != before or (seed != read.seed and other != epoch),
                    f"{what}: got the order of epoch {other} of seed {seed} on every rank, but should be another one",
                    first_cause(OF_THE_SAME_ORDER, SameOrder(read, epoch, other, seed)),
                )
            found[read.seed, epoch] = order


def _completed(judge: Judge) -> Judge:
    def both(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        judge(job, trace)

    return both


def _read(session: Session, jobs: list[Job], judge: Judge) -> None:
    for_each(session, jobs, _completed(judge))
