"""Random numbers: per-rank streams differ, common streams are equal, and other draws do not disturb them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import randomness as causes
from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
from ddpcheck.hypotheses.ordered_hypotheses.randomness import OF_COMMON_NUMBERS, OF_OTHER_NUMBERS
from ddpcheck.hypotheses.randomness.common_numbers import OtherNumbers
from ddpcheck.job import Disturb, Draw, Job, Operation, OptimizerSpec, Sample, Step
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import with_causes
from ..replicas.comparison import as_one_process
from ..samplers.comparison import shared_out
from .seeds import SEEDS, UNLIKE
from .stream_pairs import COUNT, SOME, all_apart, all_begin_apart, seeds_begin_apart
from .uniform import LONG, in_no_order, spread

if TYPE_CHECKING:
    from ddpcheck.session import Session

LATER = (10, 100, 256, 1000, 1 << 16)
"""Epochs that compensate for a seed if it counts as a hundred or a thousand, or as text; and epochs that are 0 in eight
or sixteen bits.
"""
FEW = COUNT - 3
"""A number of draws that ends in the middle of a block."""
MANY = 768
"""Epochs; with their common streams these are 1536 streams of one rank, of which 18 begin like another one if a 16-bit
number replaces seed, epoch and rank, and one or two for 20 bits.
"""


@law("randomness", needs.randomness)
def check_random_numbers_differ_by_seed_epoch_and_rank(session: Session) -> None:
    """Different (seed, epoch, rank) give different random numbers, and none can be derived from another. Common numbers
    differ from every rank's own numbers.
    """
    world = session.world_size
    epochs = tuple(range(world + 1))  # so that rank + epoch is equal for some epochs of every pair of ranks
    first, second, *others = SEEDS
    before = tuple(epoch - 1 for epoch in LATER)  # seed + epoch is that of the first seed's later epochs
    draws = (
        Draw(first, (*epochs, *LATER), COUNT),
        Draw(second, (*epochs, *before), COUNT),
        *(Draw(seed, epochs, COUNT) for seed in others),
    )
    for_each(session, [Job(world, draws)], all_apart)
    for_each(session, [Job(world, (Draw(first, tuple(range(MANY)), SOME),))], all_begin_apart)
    # two calls of an odd count each, which may take another path than the even ones above
    for_each(session, [Job(world, tuple(Draw(seed, (0, 1), 2 * SOME) for seed in SEEDS))], seeds_begin_apart)


@law("randomness", needs.randomness)
def check_random_numbers_are_uniform_on_unit_interval(session: Session) -> None:
    """Own and common random numbers are uniform over the whole of [0, 1) and unordered, on every rank."""
    # and after some calls of an epoch
    late = Draw(SEEDS[0], (1,), 2 * COUNT, extra=(3,) * session.world_size, common_first=5)
    odd = Draw(SEEDS[0], (0,), COUNT + 1)
    draws = (Draw(SEEDS[0], (0, 1, 258), COUNT), *(Draw(seed, (0, 1), COUNT) for seed in UNLIKE[1:]), late, odd)
    for_each(session, [Job(session.world_size, (draw,)) for draw in draws], spread)
    for_each(session, [Job(session.world_size, (Draw(SEEDS[0], (0,), LONG),))], in_no_order)


@law("randomness", needs.randomness)
def check_common_random_numbers_are_equal_on_all_ranks(session: Session) -> None:
    """Common random numbers are equal on all ranks, however many other numbers a rank drew from its own stream or its
    process's generators.
    """
    world = session.world_size
    draws: list[Operation] = [Draw(seed, (0, 2, 3, 12, 258, (1 << 16) + 2), COUNT) for seed in UNLIKE]
    for rank in sorted({0, world - 1}):
        extra = tuple((2 * COUNT + 3) * (other == rank) for other in range(world))
        draws += [Draw(SEEDS[0], (0, 1), COUNT), Draw(SEEDS[0], (0, 1), COUNT, extra), Disturb(rank)]
    for_each(session, [Job(world, (*draws, Draw(SEEDS[0], (0, 1), COUNT)))], _common_agree)


@law("randomness", needs.randomness)
def check_random_numbers_depend_only_on_seed_epoch_and_rank(session: Session) -> None:
    """Equal (seed, epoch, rank) give equal numbers, whatever else was drawn. This holds when an epoch starts again, at once
    or later, and in a new object, which starts at epoch 0.
    """
    world = session.world_size
    jobs = []
    for seed in UNLIKE:
        draw, again = Draw(seed, (1, 0, 1, 1), FEW), Draw(seed, (None, 0, 1), FEW)
        jobs.append(Job(world, (draw, Disturb(0), again, Draw(seed, (1, 0), FEW, common_first=5))))
    for_each(session, jobs, _come_again)


@law("sampler", needs.sampler)
def check_sampler_ignores_global_random_state(session: Session) -> None:
    """Numbers that one rank draws from its process's generators do not affect the order of samples, on which all ranks must
    agree.
    """
    world = session.world_size
    reads = [Sample(40 * world, (0, 1, 2, None), disturbed=rank) for rank in sorted({0, world - 1})]
    judge = with_causes(shared_out(session.capabilities), _or_global_generator)
    for_each(session, [Job(world, (read,)) for read in reads], judge)


@law("replica_sync", needs.replica, needs.replica.optimizers("sgd"))
def check_training_ignores_global_random_state(session: Session) -> None:
    """Numbers that one rank draws from its process's generators do not change training."""
    world, promised = session.world_size, session.capabilities
    trained = explicit_examples.steps(world, OptimizerSpec(lr=0.05, momentum=0.9))
    jobs = []
    for rank in sorted({0, world - 1}):
        operations: list[Operation] = [Disturb(rank)]
        for operation in trained.operations:
            operations += [operation, Disturb(rank)] if isinstance(operation, Step) else [operation]
        jobs.append(replace(trained, operations=tuple(operations)))
    for_each(session, fitting(session, jobs), with_causes(as_one_process(promised), _or_global_generator))


def _or_global_generator(job: Job, trace: Trace, finding: Finding) -> Given:
    return finding.diagnosis.causes, causes.GLOBAL_GENERATOR_DECIDES()


def _common_agree(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    usual: dict[tuple[int, int | None], Array] = {}
    for position, draw in enumerate(job.operations):
        if not isinstance(draw, Draw):
            continue
        for rank, common in enumerate(trace.values(position, "common")):
            for epoch, got in zip(draw.epochs, common, strict=True):
                should = usual.setdefault((draw.seed, epoch), got)
                more = draw.extra[rank] if draw.extra else 0
                assertions.that(
                    bool(np.array_equal(got, should)),
                    f"common numbers of epoch {epoch} on rank {rank}: got {some(got)}, but should be {some(should)} as "
                    "before on rank 0" + f" (it drew {more} numbers of its own first)" * bool(more),
                    first_cause(OF_COMMON_NUMBERS, OtherNumbers(got, should, draw.seed, SEEDS[0])),
                )


def _come_again(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    first = job.operations[0]
    assert isinstance(first, Draw)
    for kind in ("local", "common"):
        for rank, ((one, zero, again, at_once), (untold, fresh_zero, fresh_one)) in enumerate(
            zip(trace.values(0, kind), trace.values(2, kind), strict=True)
        ):
            for what, got, should, cause in (
                ("epoch 1 begun again", again, one, causes.RESTART_MISSING()),
                ("epoch 1 begun again at once", at_once, one, causes.SAME_EPOCH_NOT_RESTARTED()),
                ("a new object, before set_epoch,", untold, zero, causes.FIRST_EPOCH_NOT_0()),
                ("epoch 0 of a new object", fresh_zero, zero, causes.GENERATOR_USED_BY_OTHERS()),
                ("epoch 1 of a new object", fresh_one, one, causes.GENERATOR_USED_BY_OTHERS()),
            ):
                evidence = OtherNumbers(got, should, first.seed, SEEDS[0])
                assertions.that(
                    bool(np.array_equal(got, should)),
                    f"{kind} numbers of {what} on rank {rank}: got {some(got)}, but should be {some(should)} as before",
                    (*all_causes(OF_OTHER_NUMBERS, evidence), cause),
                )

    for rank, ((one, zero, *_), epochs) in enumerate(
        zip(trace.values(0, "local"), trace.values(3, "local"), strict=True)
    ):
        for epoch, got, should in ((1, epochs[0], one), (0, epochs[1], zero)):
            assertions.that(
                bool(np.array_equal(got, should)),
                f"local numbers of epoch {epoch} on rank {rank}, after five common ones: got {some(got)}, but should be "
                f"{some(should)} as before",
                causes.COMMON_FROM_OWN(),
            )


def some(numbers: Array) -> str:
    return f"[{', '.join(f'{number:.4g}' for number in numbers[:3])}, ...]"
