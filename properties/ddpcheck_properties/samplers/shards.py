"""Samplers: every sample goes to exactly one rank, and lengths are as announced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Job

from ..drawing import for_all, for_each
from ..strategies_collectives import sample_lengths, samples
from .comparison import len_is_right, shared_out
from .sampler_jobs import EPOCHS, LARGEST, PAST_16_BITS, SEED, reads

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("sampler", needs.sampler, level=Level.BASIC)
def check_shards_are_disjoint_and_complete(session: Session) -> None:
    """In every epoch, the ranks' shards are disjoint and complete, within the promised remainder rule."""
    _shares(session, drop_last=False)


@law("sampler", needs.sampler, needs.sampler.drop_last, level=Level.BASIC)
def check_drop_last_drops_only_the_tail(session: Session) -> None:
    """With drop_last, every rank gets length

    W different samples.
    """
    _shares(session, drop_last=True)


@law("sampler", needs.sampler, level=Level.BASIC)
def check_sampler_len_matches_iteration(session: Session) -> None:
    """On every rank, len(sampler) is the number of indices that iteration yields."""
    world, promised = session.world_size, session.capabilities
    lengths = sample_lengths(world, promised)
    drops = (False, True) if promised.sampler.drop_last else (False,)
    # without shuffling the sampler may be another class
    jobs = [
        reads(world, length, epochs=(0, 1), shuffle=shuffle, drop_last=drop)
        for shuffle in (True, False)
        for length in lengths
        for drop in drops
    ]
    for_each(session, jobs, len_is_right)


@law("sampler", needs.sampler, level=Level.BASIC)
def check_shards_stay_disjoint_without_set_epoch(session: Session) -> None:
    """When a sampler is read twice without set_epoch(), shards are disjoint and complete each time, because ranks agree on
    the order.
    """
    promised = session.capabilities
    drawn = samples(session.world_size, promised, epochs=((None, None), (3, None), (None, 2, None)))
    examples = [reads(session.world_size, epochs=(None, None))]
    drawn_jobs = drawn.map(lambda read: Job(session.world_size, (read,)))
    for_all(session, drawn_jobs, shared_out(promised), examples=examples, share=0.5)


def _shares(session: Session, *, drop_last: bool) -> None:
    world, promised = session.world_size, session.capabilities
    telling = 3 * world + 1, 3 * world  # first, because with few samples many mistakes look alike
    examples = [
        reads(world, length, shuffle=shuffle, drop_last=drop_last)
        for length in (*telling, *(each for each in sample_lengths(world, promised) if each not in telling))
        for shuffle in (False, True)
    ]
    examples += [reads(world, length, drop_last=drop_last) for length in (1025, 4099, PAST_16_BITS)]
    # ranks may disagree only later
    examples += [reads(world, epochs=EPOCHS, seeds=(SEED, 0), drop_last=drop_last)]
    examples += [reads(world, 3 * world + 1, epochs=(1,), seeds=LARGEST, drop_last=drop_last)]
    drawn = samples(world, promised, drop_last=drop_last).map(lambda read: Job(world, (read,)))
    for_all(session, drawn, shared_out(promised), examples=examples)
