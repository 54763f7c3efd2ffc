"""The tables of ordered_hypotheses give the right causes for samplers and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ddpcheck.hypotheses import ordered_hypotheses as tables
from ddpcheck.hypotheses.choose_causes import all_causes, first_cause
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
        (tables.OF_ABSENT_SAMPLES, AbsentSamples([[0, 1, 2, 3]] * 2, SHUFFLED, [4]), "same-share-on-every-rank"),
        (tables.OF_ABSENT_SAMPLES, AbsentSamples([[0, 1], [2, 3]], SHUFFLED, [4], (1,)), "rank-stays-in-epoch"),
        (tables.OF_ABSENT_SAMPLES, AbsentSamples([[0, 0], [2, 3]], SHUFFLED, [4]), "samples-repeated-on-rank"),
        (tables.OF_ABSENT_SAMPLES, AbsentSamples([[0, 1], [1, 3]], SHUFFLED, [4], shared=True), "ranks-disagree-on-order"),
        (tables.OF_ABSENT_SAMPLES, AbsentSamples([[0, 1], [2, 3]], NATURAL, [4, 5, 6, 7]), "tail-lost"),
        (tables.OF_ANOTHER_LENGTH, OtherLength([[0, 1, 2], [0]], 0, 3, "pad"), "whole-data-set-on-rank"),
        (tables.OF_ANOTHER_LENGTH, OtherLength([[], []], 0, 3, "pad", 1), "second-reading-empty"),
        (tables.OF_ANOTHER_LENGTH, OtherLength([[0], [1, 2]], 0, 3, "pad"), "not-padded"),
        (tables.OF_ANOTHER_LENGTH, OtherLength([[0, 1], [2]], 0, 3, "drop"), "tail-not-cut"),
        (tables.OF_ANOTHER_LENGTH, OtherLength([[0, 1], [2, 0]], 0, 3, "drop"), "tail-padded-not-cut"),
        (tables.OF_ANOTHER_TOTAL, OtherTotal(2, 5, 4), "tail-lost"),
        (tables.OF_ANOTHER_TOTAL, OtherTotal(3, 2, 3), "starved-ranks-filled"),
        (tables.OF_ANOTHER_TOTAL, OtherTotal(2, 5, 6), "remainder-padded"),
        (tables.OF_ANOTHER_LEN, OtherLen(4, 4), "length-changes"),
        (tables.OF_ANOTHER_LEN, OtherLen(4, 5), "length-computed-apart"),
        (tables.OF_A_LOST_HEAD, [[1, 3], [2, 4]], "head-cut"),
        (tables.OF_A_LOST_HEAD, [[4, 2], [3, 1]], "natural-order-reversed"),
        (tables.OF_AN_UNSHUFFLED_ORDER, [[3, 1, 2]], "shuffled-unasked"),
        (tables.OF_EQUAL_EPOCHS, EqualEpochs([(0, 1)], (0, 1), 5), "set-epoch-ignored"),
        (tables.OF_EQUAL_EPOCHS, EqualEpochs([(0, 1)], (0, 1), 0), "epoch-times-seed"),
        (tables.OF_EQUAL_EPOCHS, EqualEpochs([(0, 1)], (0, 1, 2), 5), "epoch-0-taken-for-none"),
        (tables.OF_EQUAL_EPOCHS, EqualEpochs([(1, 257)], (0, 1, 257), 5), "seed-or-epoch-truncated"),
        (tables.OF_EQUAL_SEEDS, EqualSeeds(0, 5, 2, [[0, 1]]), "epoch-not-shuffled"),
        (tables.OF_EQUAL_SEEDS, EqualSeeds(1, 5, 2, [[1, 0]], ignored=True), "seed-ignored"),
        (tables.OF_EQUAL_SEEDS, EqualSeeds(0, 5, 2, [[1, 0]]), "seed-0-taken-for-none"),
        (tables.OF_EQUAL_SEEDS, EqualSeeds(0, 1 << 32, 2, [[1, 0]]), "seed-or-epoch-truncated"),
        (tables.OF_THE_SAME_SUBSET, SameSubset([4, 1, 7, 3, 9], [7, 3, 9, 4, 1]), "one-order-for-all-epochs"),
        (tables.OF_THE_SAME_SUBSET, SameSubset([4, 1, 7, 3, 9], [7, 9, 1, 3, 4]), "shuffled-within-shares"),
        (tables.OF_AN_UNTOLD_ORDER, UntoldOrder([1, 0], [1, 0], [0, 1]), "samplers-share-state"),
        (tables.OF_AN_UNTOLD_ORDER, UntoldOrder([1, 0], [2, 0], [0, 1]), "first-epoch-not-0"),
        (tables.OF_ANOTHER_PIECE, piece(WHOLE[:5], at_once=True), "loaded-position-not-saved"),
        (tables.OF_ANOTHER_PIECE, piece([], used=True), "position-of-epoch-before"),
        (tables.OF_ANOTHER_PIECE, piece(WHOLE[:5]), "position-not-restored"),
        (tables.OF_ANOTHER_PIECE, piece(WHOLE[3:][::-1]), "rest-reshuffled"),
        (tables.OF_ANOTHER_PIECE, piece(WHOLE[2:], at=4, last=2), "position-since-last-load"),
        (tables.OF_ANOTHER_PIECE, piece(WHOLE[4:]), "resumed-too-late"),
        (tables.OF_ANOTHER_PIECE, piece(WHOLE[2:]), "resumed-too-early"),
        (tables.OF_ANOTHER_PIECE, piece([]), "nothing-left-when-resumed"),
        (tables.OF_ANOTHER_PIECE, piece(OTHER[3:]), "rest-of-another-epoch"),
        (tables.OF_ANOTHER_PIECE, piece([9], at=8), "rest-padded-again"),
        (tables.OF_ANOTHER_PIECE, piece([9, 8]), "resumed-order-differs"),
        (tables.OF_ANOTHER_NEXT_EPOCH, OtherNextEpoch(WHOLE, OTHER, WHOLE, 2), "set-epoch-lost-after-load"),
        (tables.OF_ANOTHER_NEXT_EPOCH, OtherNextEpoch(OTHER[::-1], OTHER, WHOLE, 2), "resumed-order-differs"),
        (tables.OF_ANOTHER_NEXT_EPOCH, OtherNextEpoch(OTHER[3:], OTHER, WHOLE, 2), "loaded-position-stays"),
        (tables.OF_ANOTHER_EPOCH_AT_ONCE, OtherNextEpoch(WHOLE[3:], OTHER, WHOLE, 2, 3), "set-epoch-lost-after-load"),
        (tables.OF_ANOTHER_EPOCH_AT_ONCE, OtherNextEpoch(OTHER[3:], OTHER, WHOLE, 2, 3), "loaded-position-in-next-epoch"),
        (tables.OF_ALIKE_STREAMS, alike((42, 0, 1), 1024, 0, 1024), "streams-mirrored"),
        (tables.OF_ALIKE_STREAMS, alike((42, 0, None)), "common-numbers-of-one-rank"),
        (tables.OF_ALIKE_STREAMS, alike((42, 0, 1), 100, 100), "some-numbers-shared"),
        (tables.OF_ALIKE_STREAMS, alike((41, 1, 0)), "seed-is-a-sum"),
        (tables.OF_ALIKE_STREAMS, alike((42, 1, 0), 100, 0), "streams-overlap"),
        (tables.OF_ALIKE_STREAMS, alike((0, 0, 0)), "seed-0-taken-for-none"),
        (tables.OF_ALIKE_STREAMS, alike((42, 256, 0)), "seed-or-epoch-truncated"),
        (tables.OF_ALIKE_STREAMS, alike((42, 0, 1)), "rank-not-in-seed"),
        (tables.OF_ALIKE_STREAMS, alike((42, 1, 0)), "set-epoch-ignored"),
        (tables.OF_ALIKE_STREAMS, alike((43, 0, 0)), "seed-ignored"),
        (tables.OF_DEPENDENT_STREAMS, [NUMBERS / 2, NUMBERS / 2], "numbers-scaled-or-cut"),
        (tables.OF_DEPENDENT_STREAMS, [np.sort(np.r_[NUMBERS, OTHERS])] * 2, "numbers-in-ascending-order"),
        (tables.OF_DEPENDENT_STREAMS, [np.r_[NUMBERS, OTHERS]] * 2, "streams-depend-on-each-other"),
        (tables.OF_COMMON_NUMBERS, OtherNumbers(NUMBERS + 1e-4, NUMBERS, 42, 42), "common-numbers-rounded"),
        (tables.OF_COMMON_NUMBERS, OtherNumbers(OTHERS, NUMBERS, 42, 42), "common-numbers-from-own-stream"),
        (tables.OF_COMMON_NUMBERS, OtherNumbers(OTHERS, NUMBERS, 0, 42), "seed-0-taken-for-none"),
        (tables.OF_SINGLE_COMMON_NUMBERS, OtherCommonNumbers(1, OTHERS, COMMON, COMMON, COMMON),
         "single-common-number-from-own-stream"),
        (tables.OF_SINGLE_COMMON_NUMBERS, OtherCommonNumbers(1, np.r_[COMMON[2:], 0, 0], COMMON, OTHERS, COMMON),
         "common-numbers-taken-by-rank"),
        (tables.OF_SINGLE_COMMON_NUMBERS, OtherCommonNumbers(1, OTHERS, COMMON, OTHERS, COMMON), "rank-in-common-seed"),
        (tables.OF_SINGLE_NUMBERS, RepeatedSingly([NUMBERS, OTHERS], 3), "single-number-from-shared-generator"),
        (tables.OF_SINGLE_NUMBERS, RepeatedSingly([NUMBERS, NUMBERS], 3), "rank-not-in-seed"),
        (tables.OF_REPEATED_CALLS, np.tile(NUMBERS, 2), "every-call-restarts-the-stream"),
        (tables.OF_REPEATED_CALLS, np.repeat(NUMBERS, 2), "few-different-numbers"),
        (tables.OF_REPEATED_NUMBERS, np.tile(NUMBERS, 2), "block-repeated-in-a-call"),
        (tables.OF_REPEATED_NUMBERS, np.r_[NUMBERS, OTHERS, NUMBERS], "few-different-numbers"),
    ],
)  # fmt: skip
def test_first_hypothesis_that_fits_names_the_cause(table: Table, evidence: Any, cause: str) -> None:
    assert first_cause(table, evidence)[0].id == cause


def test_no_hypothesis_need_fit() -> None:
    assert first_cause(tables.OF_ANOTHER_LENGTH, OtherLength([[0], [1, 2], [2, 3, 4, 5, 6]], 2, 7, "uneven")) == ()


def test_all_hypotheses_that_fit_are_told_in_order() -> None:
    ahead = OtherNumbers(np.r_[OTHERS[:2], NUMBERS[:-2]], NUMBERS, 7, 42)
    assert [cause.id for cause in all_causes(tables.OF_OTHER_NUMBERS, ahead)] == [
        "numbers-drawn-ahead",
        "large-seed-ignored",
    ]
