"""Random numbers call by call: no call repeats an earlier one's numbers, and objects do not share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import randomness as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.randomness import (
    OF_REPEATED_CALLS,
    OF_REPEATED_NUMBERS,
    OF_SINGLE_COMMON_NUMBERS,
    OF_SINGLE_NUMBERS,
)
from ddpcheck.hypotheses.randomness.common_numbers import OtherCommonNumbers
from ddpcheck.hypotheses.randomness.repeats import RepeatedSingly
from ddpcheck.job import Draw, Job
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace

from ..drawing import for_each
from .seeds import SEEDS, UNLIKE, of_seed
from .stream_pairs import COUNT, SHARED
from .streams import some
from .uniform import LONG

if TYPE_CHECKING:
    from ddpcheck.session import Session

EPOCHS = (0, 1)
FEW, BY_CHANCE = 64, 3
"""Numbers in a call for each. In float32 two of 64 are equal to any of 64 others with probability below 1e-6."""
MANY = 4 * COUNT
"""Of these 1/2 are equal by chance on average in float32, and more than SHARED with probability below 1e-8."""
AGAIN = 1 << 10
"""Of LONG numbers 512 are equal by chance on average in float32, and more than AGAIN hardly ever."""


@law("randomness", needs.randomness)
def check_random_numbers_do_not_repeat_within_an_epoch(session: Session) -> None:
    """Within an epoch, each call returns the next numbers of its stream and repeats none from earlier calls. Numbers already
    returned do not change.
    """
    half = MANY // 2  # with one call before the two that are compared
    draws = [Draw(seed, EPOCHS, MANY) for seed in UNLIKE]
    draws.append(Draw(SEEDS[0], EPOCHS, MANY, extra=(half,) * session.world_size, common_first=half))
    for_each(session, [Job(session.world_size, (draw,)) for draw in draws], _go_on)
    for_each(session, [Job(session.world_size, (Draw(SEEDS[0], (0,), LONG),))], _go_on_far)


@law("randomness", needs.randomness)
def check_random_streams_of_two_objects_are_independent(session: Session) -> None:
    """Own and common numbers do not change when other objects, with the same seed or another, are set to an epoch and drawn
    from.
    """
    plain = Draw(SEEDS[0], EPOCHS, COUNT)
    for_each(session, [Job(session.world_size, (Draw(SEEDS[0], EPOCHS, COUNT, beside=True), plain))], _undisturbed)


@law("randomness", needs.randomness, needs.ranks(2, most=2))
def check_random_numbers_drawn_singly_differ_between_ranks(session: Session) -> None:
    """Single own numbers, as for dropped layers, are new in each call and differ from other ranks' and from common numbers.
    Common numbers are equal on all ranks.
    """
    draws = Draw(SEEDS[0], (1,), FEW, one_by_one=True), Draw(SEEDS[0], (1,), FEW)
    for_each(session, [Job(session.world_size, draws)], _each_its_own)


def _each_its_own(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    local, common = ([numbers[0] for numbers in trace.values(0, kind)] for kind in ("local", "common"))
    at_once, all_at_once = ([numbers[0] for numbers in trace.values(1, kind)] for kind in ("local", "common"))
    for rank, numbers in enumerate(local):
        others = [("its own before", len(numbers) - len(np.unique(numbers)))]
        others += [(f"rank {other}'s", _shared(numbers, local[other])) for other in range(len(local)) if other != rank]
        others.append(("common ones", _shared(numbers, common[rank])))
        for whose, alike in others:
            assertions.that(
                alike <= BY_CHANCE,
                f"rank {rank}, {FEW} numbers in a call for each: got {alike} that are {whose}, but should be others",
                first_cause(OF_SINGLE_NUMBERS, RepeatedSingly(at_once, all_at_once, BY_CHANCE)),
            )
        of_rank = OtherCommonNumbers(rank, common[rank], common[0], all_at_once[rank], all_at_once[0])
        assertions.that(
            bool(np.array_equal(common[rank], common[0])),
            f"common numbers in a call for each on rank {rank}: got {some(common[rank])}, but should be {some(common[0])} as on "
            "rank 0",
            first_cause(OF_SINGLE_COMMON_NUMBERS, of_rank),
        )


def _shared(numbers: Array, others: Array) -> int:
    return int(np.isin(numbers, others).sum())


def _go_on(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    draw = job.operations[0]
    assert isinstance(draw, Draw)
    for kind in ("local", "common"):
        for rank, epochs in enumerate(trace.values(0, kind)):
            assertions.that(
                kind not in trace.ranks[rank].values(0).get("overwritten_later", ()),
                f"{kind} numbers on rank {rank}: got others in the same array once more were drawn, but should be a new array",
                causes.BUFFER_REUSED(),
            )
            for epoch, numbers in zip(EPOCHS, epochs, strict=True):
                again = len(numbers) - len(np.unique(numbers))
                assertions.that(
                    again <= SHARED,
                    f"{kind} numbers of epoch {epoch} on rank {rank}{of_seed(draw.seed)}: got {again} of {len(numbers)} that "
                    "were there before in the same epoch, but should be new ones",
                    first_cause(OF_REPEATED_CALLS, numbers),
                )


def _go_on_far(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for kind in ("local", "common"):
        for rank, (numbers,) in enumerate(trace.values(0, kind)):
            again = len(numbers) - len(np.unique(numbers))
            assertions.that(
                again <= AGAIN,
                f"{kind} numbers on rank {rank}: got {again} of {len(numbers)} that were there before in the same epoch, but "
                "should be new ones",
                first_cause(OF_REPEATED_NUMBERS, numbers),
            )


def _undisturbed(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    for kind in ("local", "common"):
        for rank, (beside, alone) in enumerate(zip(trace.values(0, kind), trace.values(1, kind), strict=True)):
            for epoch, got, should in zip(EPOCHS, beside, alone, strict=True):
                assertions.that(
                    bool(np.array_equal(got, should)),
                    f"{kind} numbers of epoch {epoch} on rank {rank}, with another object beside it: got {some(got)}, then "
                    f"{some(got[len(got) // 2 :])}, but should be {some(should)}, then {some(should[len(should) // 2 :])}",
                    causes.STREAMS_SHARE_GENERATOR(),
                )
