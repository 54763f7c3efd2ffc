"""Random numbers call by call: what one call gave no later one gives again, and one object's numbers are no other's business."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import expect
from ddpcheck.checks import law
from ddpcheck.job import Draw, Job
from ddpcheck.trace import Trace

from .drawing import for_each
from .randomness import LONG, SEEDS, some
from .stream_pairs import COUNT, SHARED

if TYPE_CHECKING:
    from ddpcheck.session import Session

EPOCHS = (0, 1)
MANY = 4 * COUNT
"""Of these 1/2 are equal by chance on average in float32, and more than SHARED with probability below 1e-8."""
AGAIN = 1 << 10
"""Of LONG numbers 512 are equal by chance on average in float32, and more than AGAIN hardly ever."""


@law("randomness", "facet:randomness")
def check_random_numbers_do_not_come_again_within_an_epoch(session: Session) -> None:
    """Within an epoch a call gives the next numbers of its stream, and none that a call before it gave, which stay what they
    are.
    """
    for_each(session, [Job(session.world_size, (Draw(SEEDS[0], EPOCHS, MANY),))], _go_on)
    for_each(session, [Job(session.world_size, (Draw(SEEDS[0], (0,), LONG),))], _go_on_far)


@law("randomness", "facet:randomness")
def check_random_numbers_of_two_objects_are_apart(session: Session) -> None:
    """Own and common numbers stay as they are when other objects, of another seed or the same, are told an epoch and drawn
    from.
    """
    plain = Draw(SEEDS[0], EPOCHS, COUNT)
    for_each(session, [Job(session.world_size, (Draw(SEEDS[0], EPOCHS, COUNT, beside=True), plain))], _undisturbed)


def _go_on(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    for kind in ("local", "common"):
        for rank, epochs in enumerate(trace.values(0, kind)):
            expect.that(
                kind not in trace.ranks[rank].values(0).get("overwritten_later", ()),
                f"{kind} numbers on rank {rank}: got others in the same array once more were drawn, but should be a new array",
                "every call fills one buffer: a mask that is kept for backward becomes that of the next layer",
            )
            for epoch, numbers in zip(EPOCHS, epochs, strict=True):
                again = len(numbers) - len(np.unique(numbers))
                first, second = np.split(numbers, 2)
                anew = bool(np.array_equal(first, second))
                expect.that(
                    again <= SHARED,
                    f"{kind} numbers of epoch {epoch} on rank {rank}: got {again} of {len(numbers)} that were there before in "
                    "the same epoch, but should be new ones",
                    "every call begins the stream anew, or it is no longer: all layers and steps of an epoch get the same mask"
                    if anew
                    else f"there are {len(numbers) - again} different numbers only: few bits, or a short period",
                )


def _go_on_far(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    for kind in ("local", "common"):
        for rank, (numbers,) in enumerate(trace.values(0, kind)):
            again = len(numbers) - len(np.unique(numbers))
            expect.that(
                again <= AGAIN,
                f"{kind} numbers on rank {rank}: got {again} of {len(numbers)} that were there before in the same epoch, but "
                "should be new ones",
                "a call for many numbers gives a block of them again and again, or they come from a table, or of few bits",
            )


def _undisturbed(job: Job, trace: Trace) -> None:
    expect.completed(trace)
    for kind in ("local", "common"):
        for rank, (beside, alone) in enumerate(zip(trace.values(0, kind), trace.values(1, kind), strict=True)):
            for epoch, got, should in zip(EPOCHS, beside, alone, strict=True):
                expect.that(
                    bool(np.array_equal(got, should)),
                    f"{kind} numbers of epoch {epoch} on rank {rank}, with another object beside it: got {some(got)}, then "
                    f"{some(got[len(got) // 2 :])}, but should be {some(should)}, then {some(should[len(should) // 2 :])}",
                    "the generator belongs to all objects, or to the process: what one is told moves the others",
                )
