"""Samplers that resume in the middle of an epoch, in the same or a new process: they yield the unread indices."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ddpcheck import assertions
from ddpcheck.causes import samplers as causes
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.samplers import (
    OF_ANOTHER_EPOCH_AT_ONCE,
    OF_ANOTHER_NEXT_EPOCH,
    OF_ANOTHER_PIECE,
)
from ddpcheck.hypotheses.samplers.resuming import OtherNextEpoch, OtherPiece, loaded_length_stays
from ddpcheck.hypotheses.samplers.shares import Order
from ddpcheck.job import Job, ResumeSampling
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import for_all
from ..judges import finding_on
from ..strategies import SEEDS, choice
from .sampler_jobs import PAST_16_BITS

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("sampler", needs.sampler, needs.sampler.sampler_state)
def check_sampler_state_resumes_mid_epoch(session: Session) -> None:
    """A new sampler that loads a state saved mid-epoch yields exactly the indices that an uninterrupted epoch would still
    yield, in order. The next read is a whole epoch.

    This also holds for an epoch that has only just begun in a sampler read before, and for a state that is loaded and saved
    again before a read. If another epoch is set after loading, that epoch is whole. The ranks may have read different
    numbers of indices: each resumes at its own position.
    """
    world = session.world_size
    ways: list[tuple[tuple[int, ...], bool]] = [
        ((3,), True),
        ((3,), False),
        ((1, 2), True),
        ((0,), True),
        ((10,), True),
    ]
    # a sampler that loses its epoch is in epoch 0, whose order is that of `then`
    examples = [Job(world, (ResumeSampling(10 * world, (3,), 2, 0),))]
    examples += [
        Job(world, (ResumeSampling(10 * world, pieces, epoch, 3, shuffle=shuffle, told=told),))
        for (pieces, told), epoch in product(ways, (2, 0))
        for shuffle in (True, False)
    ]
    examples.append(Job(world, (ResumeSampling(10 * world + 1, (11,), 2, 3),)))  # read to the end, padding included
    # beyond a byte, and a number of two digits, in positions and epochs; beyond two bytes in samples
    examples.append(Job(world, (ResumeSampling(PAST_16_BITS, (1003,), 258, 3, told=False),)))
    examples.append(Job(world, (ResumeSampling(10 * world, (), 2, 3, told=False, used=True),)))
    for shuffle in (True, False):
        examples.append(Job(world, (ResumeSampling(10 * world, (), 2, 3, shuffle=shuffle, used=True),)))
        # validation data are read repeatedly, without set_epoch() or always with the same epoch
        examples += [Job(world, (ResumeSampling(10 * world, (3,), 0, then, shuffle=shuffle),)) for then in (0, None)]
    examples += [
        Job(world, (ResumeSampling(10 * world, (3,), 2, 3, told=told, at_once=True),)) for told in (True, False)
    ]
    # ranks at different positions, as where each packs samples into batches of its own
    examples += [
        Job(world, (ResumeSampling(10 * world, (3,), 2, 3, told=told, ahead=1),)) for told in (True, False) if world > 1
    ]
    try:
        for_all(session, interruptions(world, session.capabilities), _as_uninterrupted, examples=examples)
    except Finding as finding:
        if _is_right_without_set_epoch(session, finding):
            raise finding.blaming(causes.SET_EPOCH_DROPS_POSITION()) from None
        raise


def _is_right_without_set_epoch(session: Session, finding: Finding) -> bool:
    """Run a Job whose loaded position is lost again, without set_epoch() after loading."""
    job = finding.job
    if job is None or not causes.POSITION_NOT_RESTORED.explains(finding.diagnosis.causes):
        return False
    (read,) = job.operations
    assert isinstance(read, ResumeSampling)
    untold = replace(job, operations=(replace(read, told=False),))
    return read.told and finding_on(session, untold, _as_uninterrupted) is None


@st.composite
def interruptions(draw: DrawFn, world_size: int, capabilities: Capabilities) -> Job:
    """An epoch read in up to four pieces; lengths with and without a remainder."""
    each, odd = draw(choice((7, 1, 2, 20))), draw(st.integers(0, world_size - 1))
    epoch, then = draw(choice(((0, 1), (2, 3), (5, 0))))
    pieces = tuple(draw(st.lists(st.integers(0, each + (odd > 0)), min_size=1, max_size=3)))
    return Job(
        world_size,
        (
            ResumeSampling(
                each * world_size + odd,
                pieces,
                epoch,
                then,
                shuffle=draw(choice((True, False))),
                seed=draw(SEEDS),
                drop_last=capabilities.sampler.drop_last and draw(choice((False, True))),
                told=draw(choice((True, False))),
            ),
        ),
    )


def _as_uninterrupted(job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    (read,) = job.operations
    assert isinstance(read, ResumeSampling)
    for rank in range(job.world_size):
        _pieces_are_of_one_epoch(job, read, trace, rank)
        _next_reading_is_whole(read, trace, rank)
        if read.then not in (None, read.epoch):
            _another_epoch_is_whole_at_once(read, trace, rank)
        _saved_sampler_goes_on(read, trace, rank)


def _order(trace: Trace, name: str, rank: int) -> Order:
    order: Order = trace.values(0, name)[rank].tolist()
    return order


def _pieces_are_of_one_epoch(job: Job, read: ResumeSampling, trace: Trace, rank: int) -> None:
    whole, other = (_order(trace, name, rank) for name in ("whole", "then_whole"))
    pieces = [piece.tolist() for piece in trace.values(0, "pieces")[rank]]
    counts = read.counts(rank)
    at = 0
    for number, piece in enumerate(pieces):
        should = whole[at : at + counts[number]] if number < len(counts) else whole[at:]
        before = pieces[number - 1] if number else []
        again = ", and again before the next" if (number > 1 and not before) or read.at_once else ""
        headline = (
            f"epoch {read.epoch} on rank {rank}, saved and loaded after {at} of {len(whole)} samples{again}: "
            f"got {_differing(piece, should)}"
        )
        evidence = OtherPiece(read, number, piece, should, whole, at, len(before), other, job.world_size)
        assertions.that(piece == should, headline, first_cause(OF_ANOTHER_PIECE, evidence))
        at += len(should)


def _next_reading_is_whole(read: ResumeSampling, trace: Trace, rank: int) -> None:
    whole, then, other = (_order(trace, name, rank) for name in ("whole", "then", "then_whole"))
    which = "another reading" if read.then is None else f"epoch {read.then}"
    place = f"{which} on rank {rank}, after epoch {read.epoch} was resumed"
    # a sampler that advances its own epoch need not reach the same one without set_epoch()
    fits = len(then) == len(other) if read.then is None and read.shuffle else then == other
    evidence = OtherNextEpoch(then, other, whole, read.epoch)
    assertions.that(fits, f"{place}: {_both(then, other)}", first_cause(OF_ANOTHER_NEXT_EPOCH, evidence))
    length = trace.values(0, "then_length")[rank]
    headline = f"{place}: len() is {length}, but should be {len(then)}, as many as it gives"
    assertions.that(length == len(then), headline, loaded_length_stays(length, len(then)))


def _another_epoch_is_whole_at_once(read: ResumeSampling, trace: Trace, rank: int) -> None:
    whole, straight, other = (_order(trace, name, rank) for name in ("whole", "straight", "then_whole"))
    at = min(sum(read.counts(rank)), len(whole))
    headline = (
        f"epoch {read.then} on rank {rank}, straight after {at} of {len(whole)} samples of epoch {read.epoch} were saved and "
        f"loaded: {_both(straight, other)}"
    )
    evidence = OtherNextEpoch(straight, other, whole, read.epoch, at)
    assertions.that(straight == other, headline, first_cause(OF_ANOTHER_EPOCH_AT_ONCE, evidence))


def _saved_sampler_goes_on(read: ResumeSampling, trace: Trace, rank: int) -> None:
    on, rest = _order(trace, "on", rank), _order(trace, "whole", rank)[read.counts(rank)[0] :]
    headline = (
        f"epoch {read.epoch} on rank {rank}, read on in the sampler whose state was saved: got {_some(on)}, but should be "
        f"{_some(rest)}"
    )
    assertions.that(on == rest, headline, causes.STATE_MOVES_SAMPLER())
    assertions.that(
        not trace.values(0, "state_changed")[rank],
        f"a state() on rank {rank}, once the sampler that gave it, or was loaded with it, was read on: got another content, "
        "but should be a copy",
        causes.STATE_IS_ALIAS(),
    )


def _both(got: Order, should: Order) -> str:
    return f"got {len(got)} samples {_some(got)}, but should be {len(should)}, {_some(should)}"


def _differing(got: Order, should: Order) -> str:
    """Both lists from the first differing sample on."""
    pairs = zip(got, should, strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), 0)
    right = f"{same} samples as they should be, then " * (same > 0)
    return f"{right}{_some(got[same:])}, but should go on with {_some(should[same:])}"


def _some(order: Order) -> str:
    return f"{order[:8]}"[:-1] + (", ...]" if len(order) > 8 else "]")
