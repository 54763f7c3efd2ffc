"""Scores of wrong rows: repeated, missing, or with targets of other outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.scores import Samples, has_score, scored
from ..facet_seams import scores
from .scores import ALL_SAMPLES, PADDING, right_score


@scored
def without_rank_1(held: Samples) -> float:
    return held.of([part for rank, part in enumerate(held.parts) if rank != 1])


@scored
def rank_0_twice(held: Samples) -> float:
    return held.of([held.parts[0], *held.parts])


@scored
def labels_counted_from_1(held: Samples) -> float:
    return held.of([(outputs, (targets + 1) % outputs.shape[1]) for outputs, targets in held.parts])


@scored
def targets_of_the_sample_before(held: Samples) -> float:
    return held.of([(outputs, np.roll(targets, 1, axis=0)) for outputs, targets in held.parts])


def _with_padding(held: Samples, kept: Callable[[int], int]) -> float:
    """The score if kept(rank) rows of padding count as samples."""
    parts = []
    for rank, (outputs, targets, indices) in enumerate(zip(held.outputs, held.targets, held.indices, strict=True)):
        padding = np.flatnonzero(indices < 0)[: kept(rank)]
        rows = np.concatenate([np.flatnonzero(indices >= 0), padding])
        parts.append((outputs[rows], targets[rows]))
    return held.of(parts)


@scored
def padding_counts_but_on_rank_0(held: Samples) -> float:
    return _with_padding(held, lambda rank: len(held.indices[rank]) if rank else 0)


@scored
def padding_counts_once(held: Samples) -> float:
    first = next((rank for rank, indices in enumerate(held.indices) if (indices < 0).any()), None)
    return _with_padding(held, lambda rank: int(rank == first))


@scores(
    "outputs-centred-in-place",
    ALL_SAMPLES,
    cause="score-changes-argument",
    score_names=frozenset({"perplexity"}),
)
def centred_in_place(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """The largest output is subtracted from the caller's array."""
    outputs -= outputs.max(axis=1, keepdims=True, initial=-np.inf)
    return right_score(comm, name, outputs, targets, indices)


# fmt: off
table(
    globals(),
    Fault("score-without-rank-1", "Rank 1's samples are left out.",
          where=always, effect=without_rank_1,
          caught_by=ALL_SAMPLES, cause="rank-missing-from-score", world_size=3),
    Fault("score-counts-rank-0-twice", "Rank 0's samples count twice.",
          where=always, effect=rank_0_twice,
          caught_by=ALL_SAMPLES, cause="rank-counts-twice"),
    Fault("score-of-labels-from-1", "Labels are read as if they started from 1.",
          where=has_score, effect=labels_counted_from_1,
          caught_by=ALL_SAMPLES, cause="labels-shifted", score_names=frozenset({"perplexity"})),
    Fault("score-of-targets-one-sample-late", "Each output is compared with the target of the previous sample.",
          where=has_score, effect=targets_of_the_sample_before,
          caught_by=ALL_SAMPLES, cause="targets-shifted", score_names=frozenset({"perplexity", "rmse"})),
    Fault("padding-counts-as-one-sample", "All padding rows together count as one sample.",
          where=always, effect=padding_counts_once,
          caught_by=PADDING, cause="padding-counted-once", world_size=3, scores_skip_padding=True),
    Fault("padding-counts-but-on-rank-0", "Padding rows count as samples on every rank except rank 0.",
          where=always, effect=padding_counts_but_on_rank_0,
          caught_by=PADDING, cause="padding-counted-but-on-rank", scores_skip_padding=True),
)
# fmt: on
