"""Tests of whether random numbers are uniform and unordered.

One of BINS equal parts of [0, 1) gets less than LEAST or more than MOST of COUNT numbers, instead of 64, with probability
below 1e-15. The steps from one number to the next, taken as turns of a circle, have a mean longer than TURNED with
probability exp(-COUNT TURNED^2) < 1e-27.
"""

from __future__ import annotations

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import randomness as causes
from ddpcheck.job import Draw, Job
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace

from .seeds import of_seed
from .stream_pairs import COUNT, TURNED

BINS, LEAST, MOST = 16, 8, 144
LONG = 1 << 17
"""The steps of LONG / 2 numbers have a mean longer than TURNED_FAR with probability exp(-LONG / 2 TURNED_FAR^2) < 1e-25, and
they are correlated by more with less than 1e-12.
"""
TURNED_FAR = 0.03
UNEVEN = 0.017
"""By more the share of LONG / 2 numbers below some x differs from x with probability 2 exp(-LONG UNEVEN^2) < 1e-15."""
LAGS = (1, 2, 3, 4, 8, 16, 32, 64)


def spread(job: Job, trace: Trace) -> None:
    """A judge: each part of the interval has a plausible share of every COUNT numbers or so, and no number follows from the
    one before.
    """
    assertions.completed(trace)
    draw = job.operations[0]
    assert isinstance(draw, Draw)
    for kind in ("local", "common"):
        for rank, epochs in enumerate(trace.values(0, kind)):
            for epoch, every in zip(draw.epochs, epochs, strict=True):
                text = f"{kind} numbers of epoch {epoch} on rank {rank}{of_seed(draw.seed)}: got"
                for numbers in np.array_split(every, len(every) // COUNT):
                    _evenly(text, numbers)


def _evenly(text: str, numbers: Array) -> None:
    parts = np.histogram(numbers, BINS, (0, 1))[0]
    filled = int((parts > 0).sum())
    assertions.that(
        filled == BINS,
        f"{text} {filled} of {BINS} parts of [0, 1), but should be all of them ({len(numbers)} numbers from "
        f"{numbers.min():.3g} to {numbers.max():.3g})",
        causes.NUMBERS_SCALED(low=float(numbers.min()), high=float(numbers.max())),
    )
    assertions.that(
        parts.min() >= LEAST and parts.max() <= MOST,
        f"{text} from {parts.min()} to {parts.max()} in each of {BINS} equal parts of [0, 1), but should be about "
        f"{len(numbers) // BINS}",
        causes.NOT_UNIFORM(),
    )
    steps = abs(np.exp(2j * np.pi * np.diff(numbers)).mean())
    assertions.that(
        bool(steps <= TURNED),
        f"{text} numbers that follow from one another (the steps between them are alike: {steps:.2f}, where random "
        f"ones have less than {TURNED}), but should be independent",
        causes.NUMBERS_FOLLOW(),
    )


def in_no_order(job: Job, trace: Trace) -> None:
    """A judge: in a call for many numbers, near and farther neighbours do not depend on each other."""
    assertions.completed(trace)
    for kind in ("local", "common"):
        for rank, (numbers,) in enumerate(trace.values(0, kind)):
            half = numbers[: LONG // 2]
            uneven = np.max(abs(np.sort(half) - (np.arange(len(half)) + 0.5) / len(half)))
            assertions.that(
                bool(uneven <= UNEVEN),
                f"{kind} numbers on rank {rank}: got a share below x of {len(half)} of them that is off by {uneven:.3f} "
                f"for some x, but should be x itself, within {UNEVEN}",
                causes.NOT_UNIFORM(),
            )
            turns, centred = np.exp(2j * np.pi * half), np.sqrt(12) * (half - 0.5)
            for lag in LAGS:
                # not vdot, whose threads wait for each other on busy cores
                alike = max(abs((each[:-lag].conj() * each[lag:]).mean()) for each in (turns, centred))
                assertions.that(
                    bool(alike <= TURNED_FAR),
                    f"{kind} numbers on rank {rank}: got such as follow from those {lag} places before (the steps between "
                    f"them are alike: {alike:.2f}, where random ones have less than {TURNED_FAR}), but should be independent",
                    causes.NUMBERS_MIXED(lag=lag),
                )
