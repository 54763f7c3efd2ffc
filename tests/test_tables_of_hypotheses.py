"""The tables of ordered_hypotheses give the right causes for samplers and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
from ddpcheck.hypotheses.ordered_hypotheses.randomness import (
    OF_ALIKE_STREAMS,
    OF_COMMON_NUMBERS,
    OF_DEPENDENT_STREAMS,
    OF_OTHER_NUMBERS,
    OF_REPEATED_CALLS,
    OF_REPEATED_NUMBERS,
    OF_SINGLE_COMMON_NUMBERS,
    OF_SINGLE_NUMBERS,
)
from ddpcheck.hypotheses.ordered_hypotheses.samplers import (
    OF_A_LOST_HEAD,
    OF_ABSENT_SAMPLES,
    OF_AN_UNSHUFFLED_ORDER,
    OF_AN_UNTOLD_ORDER,
    OF_ANOTHER_EPOCH_AT_ONCE,
    OF_ANOTHER_LEN,
    OF_ANOTHER_LENGTH,
    OF_ANOTHER_NEXT_EPOCH,
    OF_ANOTHER_PIECE,
    OF_ANOTHER_TOTAL,
    OF_EQUAL_EPOCHS,
    OF_EQUAL_SEEDS,
    OF_THE_SAME_SUBSET,
)
from ddpcheck.hypotheses.randomness.common_numbers import OtherCommonNumbers, OtherNumbers
from ddpcheck.hypotheses.randomness.repeats import RepeatedSingly
from ddpcheck.hypotheses.randomness.stream_pairs import AlikeStreams
from ddpcheck.hypotheses.samplers.orders import EqualEpochs, EqualSeeds, OtherLen, SameSubset, UntoldOrder
from ddpcheck.hypotheses.samplers.resuming import OtherNextEpoch, OtherPiece
from ddpcheck.hypotheses.samplers.shares import AbsentSamples, OtherLength, OtherTotal
from ddpcheck.job import ResumeSampling, Sample

Table = tuple[Callable[[Any], Any], ...]

SHUFFLED, NATURAL = Sample(8, (0,)), Sample(8, (0,), shuffle=False)
WHOLE, OTHER = [6, 0, 7, 1, 4, 3, 5, 2], [1, 5, 0, 3, 2, 7, 6, 4]
NUMBERS = np.random.default_rng(1).random(32)
OTHERS = np.random.default_rng(2).random(32)
COMMON = np.random.default_rng(3).random(32)


def piece(got: list[int], at: int = 3, last: int = 3, **read: Any) -> OtherPiece:
    resumed = ResumeSampling(8, (3,), 2, 3, **read)
    return OtherPiece(resumed, 1, got, WHOLE[at:], WHOLE, at, last, OTHER)


def alike(second: tuple[int, int, int | None], same: int = 1024, in_place: int = 1024, turned: int = 0) -> AlikeStreams:
    return AlikeStreams((42, 0, 0), second, 1024, 8, same, in_place, turned)


@pytest.mark.parametrize(
    ("table", "evidence", "cause"),
    [
        (OF_ABSENT_SAMPLES, AbsentSamples([[0, 1, 2, 3]] * 2, SHUFFLED, [4]), "same-share-on-every-rank"),
        (OF_ABSENT_SAMPLES, AbsentSamples([[0, 1], [2, 3]], SHUFFLED, [4], (1,)), "rank-stays-in-epoch"),
        (OF_ABSENT_SAMPLES, AbsentSamples([[0, 0], [2, 3]], SHUFFLED, [4]), "samples-repeated-on-rank"),
        (OF_ABSENT_SAMPLES, AbsentSamples([[0, 1], [1, 3]], SHUFFLED, [4], shared=True), "ranks-disagree-on-order"),
        (OF_ABSENT_SAMPLES, AbsentSamples([[0, 1], [2, 3]], NATURAL, [4, 5, 6, 7]), "tail-lost"),
        (OF_ANOTHER_LENGTH, OtherLength([[0, 1, 2], [0]], 0, 3, "pad"), "whole-data-set-on-rank"),
        (OF_ANOTHER_LENGTH, OtherLength([[], []], 0, 3, "pad", 1), "second-reading-empty"),
        (OF_ANOTHER_LENGTH, OtherLength([[0], [1, 2]], 0, 3, "pad"), "not-padded"),
        (OF_ANOTHER_LENGTH, OtherLength([[0, 1], [2]], 0, 3, "drop"), "tail-not-cut"),
        (OF_ANOTHER_LENGTH, OtherLength([[0, 1], [2, 0]], 0, 3, "drop"), "tail-padded-not-cut"),
        (OF_ANOTHER_LENGTH, OtherLength([[0, 2, 0, 2], [1, 3, 1, 3]], 0, 4, "pad"), "order-comes-twice"),
        (OF_ANOTHER_LENGTH, OtherLength([[0], [0], [], []], 2, 1, "pad"), "padding-taken-once"),
        (OF_ANOTHER_TOTAL, OtherTotal(2, 5, 4), "tail-lost"),
        (OF_ANOTHER_TOTAL, OtherTotal(3, 2, 3), "starved-ranks-filled"),
        (OF_ANOTHER_TOTAL, OtherTotal(2, 5, 6), "remainder-padded"),
        (OF_ANOTHER_LEN, OtherLen(4, 4), "length-changes"),
        (OF_ANOTHER_LEN, OtherLen(4, 5), "length-computed-apart"),
        (OF_A_LOST_HEAD, [[1, 3], [2, 4]], "head-cut"),
        (OF_A_LOST_HEAD, [[4, 2], [3, 1]], "natural-order-reversed"),
        (OF_AN_UNSHUFFLED_ORDER, [[3, 1, 2]], "shuffled-unasked"),
        (OF_AN_UNSHUFFLED_ORDER, [[0, 2, 0, 2], [1, 3, 1, 3]], "order-comes-twice"),
        (OF_AN_UNSHUFFLED_ORDER, [[0, 2], [1, 3, 1]], "padded-too-much"),
        (OF_EQUAL_EPOCHS, EqualEpochs([(0, 1)], (0, 1), 5), "set-epoch-ignored"),
        (OF_EQUAL_EPOCHS, EqualEpochs([(0, 1)], (0, 1), 0), "epoch-times-seed"),
        (OF_EQUAL_EPOCHS, EqualEpochs([(0, 1)], (0, 1, 2), 5), "epoch-0-taken-for-none"),
        (OF_EQUAL_EPOCHS, EqualEpochs([(2, 0), (2, 1), (0, 1)], (2, 0, 1, 3), 5), "lower-epoch-ignored"),
        (OF_EQUAL_EPOCHS, EqualEpochs([(1, 257)], (0, 1, 257), 5), "seed-or-epoch-truncated"),
        (OF_EQUAL_SEEDS, EqualSeeds(0, 5, 2, [[0, 1]]), "epoch-not-shuffled"),
        (OF_EQUAL_SEEDS, EqualSeeds(1, 5, 2, [[1, 0]], ignored=True), "seed-ignored"),
        (OF_EQUAL_SEEDS, EqualSeeds(0, 5, 2, [[1, 0]]), "seed-0-taken-for-none"),
        (OF_EQUAL_SEEDS, EqualSeeds(0, 1 << 32, 2, [[1, 0]]), "seed-or-epoch-truncated"),
        (OF_THE_SAME_SUBSET, SameSubset([4, 1, 7, 3, 9], [7, 3, 9, 4, 1]), "one-order-for-all-epochs"),
        (OF_THE_SAME_SUBSET, SameSubset([4, 1, 7, 3, 9], [7, 9, 1, 3, 4]), "shuffled-within-shares"),
        (OF_AN_UNTOLD_ORDER, UntoldOrder([1, 0], [1, 0], [0, 1]), "samplers-share-state"),
        (OF_AN_UNTOLD_ORDER, UntoldOrder([1, 0], [2, 0], [0, 1]), "first-epoch-not-0"),
        (OF_ANOTHER_PIECE, piece(WHOLE[:5], at_once=True), "loaded-position-not-saved"),
        (OF_ANOTHER_PIECE, piece([], used=True), "position-of-epoch-before"),
        (OF_ANOTHER_PIECE, piece(WHOLE[:5]), "position-not-restored"),
        (OF_ANOTHER_PIECE, piece(WHOLE, at=len(WHOLE)), "end-of-epoch-begins-again"),
        (OF_ANOTHER_PIECE, piece(WHOLE[3:][::-1]), "rest-reshuffled"),
        (OF_ANOTHER_PIECE, piece(WHOLE[2:], at=4, last=2), "position-since-last-load"),
        (OF_ANOTHER_PIECE, piece(WHOLE[4:]), "resumed-too-late"),
        (OF_ANOTHER_PIECE, piece(WHOLE[2:]), "resumed-too-early"),
        (OF_ANOTHER_PIECE, replace(piece(WHOLE[3:], at=4, last=4, ahead=1), world=2), "position-of-another-rank"),
        (OF_ANOTHER_PIECE, replace(piece(WHOLE[5:], at=4, last=4, ahead=1), world=2), "resumed-too-late"),
        (OF_ANOTHER_PIECE, piece([]), "nothing-left-when-resumed"),
        (OF_ANOTHER_PIECE, piece(OTHER[3:]), "rest-of-another-epoch"),
        (OF_ANOTHER_PIECE, piece([9], at=8), "rest-padded-again"),
        (OF_ANOTHER_PIECE, piece([9, 8]), "resumed-order-differs"),
        (OF_ANOTHER_NEXT_EPOCH, OtherNextEpoch(WHOLE, OTHER, WHOLE, 2), "set-epoch-lost-after-load"),
        (OF_ANOTHER_NEXT_EPOCH, OtherNextEpoch(OTHER[::-1], OTHER, WHOLE, 2), "resumed-order-differs"),
        (OF_ANOTHER_NEXT_EPOCH, OtherNextEpoch(OTHER[3:], OTHER, WHOLE, 2), "loaded-position-stays"),
        (OF_ANOTHER_EPOCH_AT_ONCE, OtherNextEpoch(WHOLE[3:], OTHER, WHOLE, 2, 3), "set-epoch-lost-after-load"),
        (OF_ANOTHER_EPOCH_AT_ONCE, OtherNextEpoch(OTHER[3:], OTHER, WHOLE, 2, 3), "loaded-position-in-next-epoch"),
        (OF_ALIKE_STREAMS, alike((42, 0, 1), 1024, 0, 1024), "streams-mirrored"),
        (OF_ALIKE_STREAMS, alike((42, 0, None)), "common-numbers-of-one-rank"),
        (OF_ALIKE_STREAMS, alike((42, 0, 1), 100, 100), "some-numbers-shared"),
        (OF_ALIKE_STREAMS, alike((41, 1, 0)), "seed-is-a-sum"),
        (OF_ALIKE_STREAMS, alike((42, 1, 0), 100, 0), "streams-overlap"),
        (OF_ALIKE_STREAMS, alike((0, 0, 0)), "seed-0-taken-for-none"),
        (OF_ALIKE_STREAMS, alike((42, 256, 0)), "seed-or-epoch-truncated"),
        (OF_ALIKE_STREAMS, alike((42, 0, 1)), "rank-not-in-seed"),
        (OF_ALIKE_STREAMS, alike((42, 1, 0)), "set-epoch-ignored"),
        (OF_ALIKE_STREAMS, alike((43, 0, 0)), "seed-ignored"),
        (OF_DEPENDENT_STREAMS, [NUMBERS / 2, NUMBERS / 2], "numbers-scaled-or-cut"),
        (OF_DEPENDENT_STREAMS, [np.sort(np.r_[NUMBERS, OTHERS])] * 2, "numbers-in-ascending-order"),
        (OF_DEPENDENT_STREAMS, [np.r_[NUMBERS, OTHERS]] * 2, "streams-depend-on-each-other"),
        (OF_COMMON_NUMBERS, OtherNumbers(NUMBERS + 1e-4, NUMBERS, 42, 42), "common-numbers-rounded"),
        (OF_COMMON_NUMBERS, OtherNumbers(OTHERS, NUMBERS, 42, 42), "common-numbers-from-own-stream"),
        (OF_COMMON_NUMBERS, OtherNumbers(OTHERS, NUMBERS, 0, 42), "seed-0-taken-for-none"),
        (OF_SINGLE_COMMON_NUMBERS, OtherCommonNumbers(1, OTHERS, COMMON, COMMON, COMMON),
         "single-common-number-from-own-stream"),
        (OF_SINGLE_COMMON_NUMBERS, OtherCommonNumbers(1, np.r_[COMMON[2:], 0, 0], COMMON, OTHERS, COMMON),
         "common-numbers-taken-by-rank"),
        (OF_SINGLE_COMMON_NUMBERS, OtherCommonNumbers(1, OTHERS, COMMON, OTHERS, COMMON), "rank-in-common-seed"),
        (OF_SINGLE_NUMBERS, RepeatedSingly([NUMBERS, OTHERS], [COMMON, COMMON], 3), "single-number-from-shared-generator"),
        (OF_SINGLE_NUMBERS, RepeatedSingly([NUMBERS, NUMBERS], [COMMON, COMMON], 3), "rank-not-in-seed"),
        (OF_SINGLE_NUMBERS, RepeatedSingly([COMMON, OTHERS], [COMMON, COMMON], 3), "common-numbers-of-one-rank"),
        (OF_REPEATED_CALLS, np.tile(NUMBERS, 2), "every-call-restarts-the-stream"),
        (OF_REPEATED_CALLS, np.repeat(NUMBERS, 2), "few-different-numbers"),
        (OF_REPEATED_NUMBERS, np.tile(NUMBERS, 2), "block-repeated-in-a-call"),
        (OF_REPEATED_NUMBERS, np.r_[NUMBERS, OTHERS, NUMBERS], "few-different-numbers"),
    ],
)  # fmt: skip
def test_first_hypothesis_that_fits_names_the_cause(table: Table, evidence: Any, cause: str) -> None:
    assert first_cause(table, evidence)[0].id == cause


def test_no_hypothesis_need_fit() -> None:
    assert first_cause(OF_ANOTHER_LENGTH, OtherLength([[0], [1, 2], [2, 3, 4, 5, 6]], 2, 7, "uneven")) == ()


def test_all_hypotheses_that_fit_are_told_in_order() -> None:
    ahead = OtherNumbers(np.r_[OTHERS[:2], NUMBERS[:-2]], NUMBERS, 7, 42)
    assert [cause.id for cause in all_causes(OF_OTHER_NUMBERS, ahead)] == [
        "numbers-drawn-ahead",
        "large-seed-ignored",
    ]
