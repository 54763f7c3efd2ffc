"""Scores against those of one process that holds the samples of all ranks, with the causes of wrong scores."""

from __future__ import annotations

import math

from ddpcheck import assertions
from ddpcheck.causes import scores as causes
from ddpcheck.causes.metrics import RANKS_ADD_IN_OTHER_ORDER
from ddpcheck.hypotheses.causes_of_wrong_numbers import causes_of_scores
from ddpcheck.hypotheses.scores.evidence import WrongScore
from ddpcheck.job import Job, Score
from ddpcheck.oracle.scores import allowed, counted, score_of
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding


def as_of_one_process(job: Job, trace: Trace) -> None:
    """Every score of the Job; NaN without samples, or without samples of a class that AUC needs."""
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Score)
        before = [each for each in job.operations[:position] if isinstance(each, Score)]
        _compare(made, before, trace.values(position, "score"))
        for rank, changed in enumerate(trace.values(position, "argument_changed")):
            assertions.that(
                not changed,
                f"an array that rank {rank} passed for {_named(made)} was changed, but should stay as it was",
                causes.SCORE_CHANGES_ARGUMENT(),
            )


def no_number(job: Job, trace: Trace) -> None:
    """The scores of samples that contain one NaN."""
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Score)
        for rank, got in enumerate(trace.values(position, "score")):
            assertions.that(
                math.isnan(got),
                f"{_named(made)}, with a NaN in the output of sample {made.poisoned}: on rank {rank} got {got}, but should be "
                "NaN",
                causes.NAN_OF_SAMPLE_LOST(),
            )


def equal(job: Job, trace: Trace) -> None:
    """All ranks have the same bits."""
    assertions.completed(trace)
    for position, made in enumerate(job.operations):
        assert isinstance(made, Score)
        first, *others = trace.values(position, "score")
        for rank, got in enumerate(others, start=1):
            cause = RANKS_ADD_IN_OTHER_ORDER()
            assertions.equal(got, first, f"{_named(made)}, compared with rank 0,", rank, cause)


def _compare(made: Score, before: list[Score], found: list[float]) -> None:
    outputs, targets, _ = made.rows(counted(made.indices))
    want = score_of(made.name, outputs, targets)
    bound = 0.0 if math.isnan(want) else allowed(made.name, outputs, targets, len(made.indices))
    if math.isnan(want):
        wrong = [rank for rank, got in enumerate(found) if not math.isnan(got)]
    else:
        wrong = [rank for rank, got in enumerate(found) if not abs(got - want) <= bound]
    if not wrong:
        return
    evidence = [WrongScore(made, tuple(before), rank, found[rank], want, bound) for rank in wrong]
    note = "" if math.isnan(want) else f" (rounding allows {bound:.1g})"
    raise Finding(
        Diagnosis(
            f"{_named(made)}: on rank {wrong[0]} got {found[wrong[0]]}, but should be {want}{note}",
            causes_of_scores(evidence),
            "the values that each rank sends: sums of hits, squares, losses or counts of classes add up, scores do not",
            tuple(f"rank {rank}: {got}" for rank, got in enumerate(found)),
        )
    )


def _named(made: Score) -> str:
    sizes = [len(held) for held in made.indices]
    if sum(sizes) > 12 * len(sizes):
        return f"{made.name} over {sizes} samples"
    return f"{made.name} over samples {[list(held) for held in made.indices]}"
