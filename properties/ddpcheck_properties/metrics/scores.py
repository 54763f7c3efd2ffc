"""Checks of scores that are not means of the ranks' scores: they equal those of one process with all samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Job, Score

from ..drawing import all_or_every_second, for_all, for_each
from ..strategies import SEEDS, choice
from .score_comparison import as_of_one_process, equal, no_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypothesis.strategies import DrawFn

    from ddpcheck.operations import PerRank
    from ddpcheck.session import Session


WINDOW = 32
"""Rows that an implementation may process together: duplicates are then in different windows, and the last window is
short.
"""
LARGER_WINDOW = 128
"""Rows that windows of 2, 4, 8 ... 128 rows divide: no window is short."""
ROUND_ROWS = 100
"""Rows that windows of 10, 20, 25, 50 and 100 divide."""
LIFTED = 1024.0
"""Added to outputs: exp() of the sum overflows in float64, and of its negative is 0."""
CALLED = ((1 << 24, 1), (1 << 53, 1), (0, 1 << 32), (1 << 31, 1))
"""The first sample's name and the distance to the next: neighbours beyond float32's and float64's exact integers, names
that are equal in 32 bits, and names that are negative there.
"""

_FINE = "perplexity", "rmse"
"""Scores that are no ratios of counts."""


@law("scores", needs.scores)
def check_scores_match_one_process(session: Session) -> None:
    """A score equals that of one process with all ranks' samples, up to the rounding of float32 sums. This holds for any
    number of samples on each rank, also if they fill batches of any usual size. Calls are stateless.
    """
    world, names = session.world_size, _promised(session)
    few, more = (*(2,) * (world - 1), 9), (7, *(3,) * (world - 1))
    # counts that half precision cannot hold, and labels that a byte cannot hold
    many, labels = (*(2,) * (world - 1), 2051), _dealt(range(250, 270), world)
    # the first sample is on the last rank, and the other ranks have one sample less
    turned = _dealt(range(4 * world + 1), world)[::-1]
    examples = []
    for name in names:
        calls = [_score(name, sizes, seed) for seed, sizes in enumerate((few, more, few[::-1]))]
        examples += [Job(world, tuple(calls)), Job(world, (_score_of(name, turned),))]
        if name in _FINE:  # values with more digits than half precision has
            examples.append(Job(world, (replace(calls[0], values="real"),)))
        if name == "rmse":  # numbers whose squares have more digits than float32
            examples.append(Job(world, (replace(calls[0], far=True),)))
        elif name != "auc":  # two classes, which many implementations treat separately
            several = replace(_score(name, tuple(range(50, 50 + world))), classes=7)
            examples += [Job(world, (each,)) for each in (replace(calls[1], classes=2), several)]
        if name == "auc":  # close margins, in so many pairs that the order matters
            examples.append(Job(world, (replace(_score(name, (60,) * world), values="real"),)))
        elif name in ("accuracy", "f1_macro"):
            examples.append(Job(world, (Score(name, labels, 300),)))
    examples.append(Job(world, tuple(_score(name, few, seed=7) for name in (*names, *names[::-1]))))
    for name in names:
        examples += [Job(world, (_score(name, (rows,) * world),)) for rows in (LARGER_WINDOW, ROUND_ROWS)]
        large = _score(name, many)
        examples.append(Job(world, (replace(large, classes=1) if name == "rmse" else large,)))
    for_all(session, _drawn(world, names), as_of_one_process, examples=all_or_every_second(session, examples))


@law("scores", needs.scores)
def check_scores_ignore_ranks_without_samples(session: Session) -> None:
    """A rank without samples does not change a score."""
    world, jobs = session.world_size, []
    for name in _promised(session):
        for rank in range(world):
            only = tuple(5 * (place == rank) for place in range(world))
            but = tuple((3 + place) * (place != rank) for place in range(world))
            jobs += [
                Job(world, (_score(name, sizes), _score(name, (4,) * world))) for sizes in (only, but) if any(sizes)
            ]
    for_each(session, all_or_every_second(session, jobs), as_of_one_process)


@law("scores", needs.scores)
def check_scores_without_samples_are_nan(session: Session) -> None:
    """Without samples on any rank, a score is NaN on every rank, and no rank fails."""
    world = session.world_size
    jobs = [Job(world, (_score(name, (0,) * world), _score(name, (4,) * world))) for name in _promised(session)]
    for_each(session, jobs, as_of_one_process)


@law("scores", needs.scores.score_names("f1_macro"))
def check_macro_f1_averages_classes_seen_on_any_rank(session: Session) -> None:
    """Macro F1 is the mean over all classes that occur on any rank, as a label or as a prediction, each with all ranks'
    counts. A class that is only a label or only a prediction counts; a class that occurs nowhere does not.
    """
    world, jobs = session.world_size, []
    for classes in (2, 3, 5):
        by_class = sorted(range(21), key=lambda index: index % classes)
        apart = tuple(tuple(by_class[21 * rank // world : 21 * (rank + 1) // world]) for rank in range(world))
        only_taken_for = _dealt([index for index in range(30) if index % classes], world)
        nowhere = _dealt([index for index in range(20) if index % classes < 2], world)
        jobs += [
            Job(world, (Score("f1_macro", apart, classes, 1),)),
            Job(world, (Score("f1_macro", only_taken_for, classes, 2),)),
            Job(world, (Score("f1_macro", _dealt(range(20), world), classes, 3, guesses=1),)),
            Job(world, (Score("f1_macro", nowhere, classes, 4, guesses=2),)),
        ]
    for_each(session, jobs, as_of_one_process)


@law("scores", needs.scores.score_names("auc"), needs.ranks(2))
def check_auc_compares_samples_across_ranks(session: Session) -> None:
    """AUC covers all pairs of samples of two classes, including pairs across ranks. A rank may have one class only, or
    margins that could be probabilities. If no rank has the other class, AUC is NaN.
    """
    world = session.world_size
    # the label of a sample is its index modulo 2
    apart = tuple(tuple(range(rank % 2 + 2 * rank, 60, 2 * world)) for rank in range(world))
    one_kind = (*(tuple(range(2 * rank, 40, 2 * world)) for rank in range(world - 1)), (1, 3, 5, 40, 42))
    labelled_0 = tuple(tuple(range(2 * rank, 30, 2 * world)) for rank in range(world))
    kinds = apart, one_kind, labelled_0
    jobs = [Job(world, (Score("auc", held, 2, seed),)) for seed, held in enumerate(kinds)]
    jobs.append(Job(world, (_with_small_margins(world),)))
    for_each(session, jobs, as_of_one_process)


@law("scores", needs.scores.score_names("rmse"))
def check_rmse_with_a_nan_sample_is_nan(session: Session) -> None:
    """A NaN in an output on any rank makes the RMSE NaN on all ranks. A diverged run must not look healthy."""
    _shows(session, "rmse")


@law("scores", needs.scores.score_names("perplexity"))
def check_perplexity_of_large_losses_is_not_clamped(session: Session) -> None:
    """Perplexity is correct for large losses, such as several dozen: nothing is clamped. It is correct for large outputs,
    whose exponentials overflow, and for very negative ones.
    """
    world = session.world_size
    made = _score("perplexity", tuple(3 + rank for rank in range(world)))
    jobs = [Job(world, (replace(made, lifted=sign * LIFTED),)) for sign in (1, -1)]
    for_each(session, [Job(world, (replace(made, far=True),)), *jobs], as_of_one_process)


@law("scores", needs.scores.score_names("perplexity"))
def check_perplexity_with_a_nan_sample_is_nan(session: Session) -> None:
    """A NaN in an output on any rank makes the perplexity NaN on all ranks. A diverged run must not look healthy."""
    _shows(session, "perplexity")


@law("scores", needs.scores, needs.ranks(2))
def check_scores_are_bitwise_equal_on_all_ranks(session: Session) -> None:
    """Every rank gets the same bits, for real values too, because decisions based on a score must not differ between ranks."""
    world, jobs = session.world_size, []
    for name in _promised(session):
        sizes = tuple(range(3, 3 + world))
        # a score often rounds away the last bit of a sum; a score of counts has no such bits
        times = 24 if name in _FINE else 3
        classes = {"auc": (2,), "rmse": (3, 1, 7)}.get(name, (3, 7))
        calls = [
            replace(_score(name, sizes, seed), values="real", classes=classes[seed % len(classes)])
            for seed in range(times)
        ]
        jobs.append(Job(world, tuple(calls)))
        dealt = _dealt(range(sum(sizes)), world)[::-1]  # the first samples are the last rank's
        jobs.append(Job(world, tuple(replace(call, indices=dealt) for call in calls[:6])))
        if session.capabilities.scores.scores_skip_padding:
            padded = tuple((*held, -1) for held in dealt)
            jobs.append(Job(world, tuple(replace(call, indices=padded) for call in calls[:6])))
    for_each(session, jobs, equal)


@law("scores", needs.scores, needs.scores.scores_count_once)
def check_duplicate_samples_count_once_in_scores(session: Session) -> None:
    """A duplicate sample, such as sampler padding, counts once, on several ranks or on one, at any position."""
    world, jobs = session.world_size, []
    for name in _promised(session):
        for seed, length in enumerate((2 * world + 1, 3 * world - 1, 1)):
            whole = -(-length // world) * world
            padded = [place % length for place in range(whole)]  # as DistributedSampler pads
            held = _dealt(padded, world)
            turned = (*held[1:], held[0])
            repeated = tuple(rank[::-1] + rank[:1] for rank in held)
            jobs += [Job(world, (_score_of(name, each, seed),)) for each in (repeated, held, turned)]
        for length in (WINDOW * world + 1, WINDOW * world, LARGER_WINDOW * world):
            seams = tuple((*rank, rank[0], rank[-1]) for rank in _dealt(range(length), world))
            jobs.append(Job(world, (_score_of(name, seams),)))
        # each has fewer samples than the one before; ranks differ in most of them
        for less, (first, apart) in enumerate(CALLED):
            once = _score_of(name, _dealt(range(3 * world + 3 - less), world))
            jobs.append(Job(world, (replace(once, first=first, apart=apart),)))
    for_all(
        session,
        _drawn(world, _promised(session), most=2),
        as_of_one_process,
        examples=all_or_every_second(session, jobs),
        share=0.5,
    )


@law("scores", needs.scores, needs.scores.scores_skip_padding)
def check_scores_ignore_padding(session: Session) -> None:
    """Padding rows (index -1) count in no score. This holds at any position, on ranks with or without other rows, and for
    any content, even NaN.
    """
    world, jobs = session.world_size, []
    for name in _promised(session):
        held = _dealt(range(2 * world + 1), world)
        at_end = tuple(rank + (-1,) * (4 - len(rank)) for rank in held)
        at_front = tuple((-1,) * place + rank for place, rank in enumerate(held, start=1))
        empty = (*((-1, -1) for _ in range(world - 1)), (0, -1, 1, 2))
        jobs += [Job(world, (_score_of(name, each, seed),)) for seed, each in enumerate((at_end, at_front, empty))]
        jobs.append(Job(world, (_score_of(name, ((-1, -1),) * world, 0),)))
        jobs += [Job(world, (replace(_score_of(name, each), empty=True),)) for each in (at_front, empty)]
        if name in _FINE:
            jobs.append(Job(world, (replace(_score_of(name, at_end), values="real"),)))
    for_each(session, jobs, as_of_one_process)


def _with_small_margins(world: int) -> Score:
    """Rank 0 has the samples with margins in [0, 1], the others have the rest."""
    every = tuple(range(60))
    made = Score("auc", (every,), 2)
    outputs, _, _ = made.rows(every)
    margin = outputs[:, 1] - outputs[:, 0]
    small = tuple(np.flatnonzero((margin >= 0) & (margin <= 1)).tolist())
    return replace(made, indices=(small, *_dealt((each for each in every if each not in small), world - 1)))


def _shows(session: Session, name: str) -> None:
    world = session.world_size
    made = _score(name, tuple(2 + rank for rank in range(world)))
    jobs = [Job(world, (replace(made, poisoned=held[-1]),)) for held in made.indices]
    many = _score(name, (24,) * world)
    more = [replace(made, classes=7), replace(made, classes=1 if name == "rmse" else 2), many]
    jobs += [Job(world, (replace(each, poisoned=each.indices[-1][-1]),)) for each in more]
    for_each(session, jobs, no_number)


def _promised(session: Session) -> tuple[str, ...]:
    """RMSE and perplexity first: two mistakes seldom give the same number there, unlike in counts of few samples."""
    return tuple(sorted(session.capabilities.scores.score_names, reverse=True))


def _score(name: str, sizes: Sequence[int], seed: int = 0) -> Score:
    """The first samples of a data set: this number on each rank, one rank after the other."""
    ends = accumulate(sizes)
    return _score_of(name, tuple(tuple(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)), seed)


def _score_of(name: str, held: PerRank, seed: int = 0) -> Score:
    return Score(name, held, 2 if name == "auc" else 3, seed)


def _dealt(samples: Iterable[int], world: int) -> PerRank:
    """Rank r gets every W-th sample from the r-th on, as from a sampler."""
    every = tuple(samples)
    return tuple(every[rank::world] for rank in range(world))


@st.composite
def _drawn(draw: DrawFn, world: int, names: tuple[str, ...], most: int = 1) -> Job:
    """A score over up to a dozen samples, each held by one rank, or by up to `most` ranks."""
    name = draw(choice(names))
    held: list[list[int]] = [[] for _ in range(world)]
    for sample in range(draw(choice(tuple(range(1, 13))))):
        for _ in range(draw(choice(tuple(range(1, most + 1))))):
            held[draw(choice(tuple(range(world))))].append(sample)
    classes = 2 if name == "auc" else draw(choice((3, 2, 5)))
    return Job(world, (Score(name, tuple(map(tuple, held)), classes, draw(SEEDS)),))
