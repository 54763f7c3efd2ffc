"""Scores that pad blocks with zeros before gathering and cut them wrongly afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from .score_samples import ONCE
from .scores import ALL_SAMPLES, right_score


def _longest(comm: Any, array: Array) -> int:
    return int(comm.all_reduce(np.array(len(array), np.int64), "max"))


def _filled(array: Array, size: int) -> Array:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


@scores("score-counts-the-fill", ALL_SAMPLES, cause="fill-counted")
def counts_the_fill(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Gathered blocks are padded to equal sizes, and the padding is scored."""
    longest = _longest(comm, indices)
    own = np.arange(longest) + (1 << 40) + rank * longest
    return right_score(comm, name, _filled(outputs, longest), _filled(targets, longest), own)


@scores(
    "score-takes-the-fill-for-sample-0",
    ALL_SAMPLES,
    seen_in=("huggingface/accelerate (pad_index)",),
    cause="sample-0-from-fill",
    **ONCE,
)
def takes_the_fill_for_sample_0(
    comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array
) -> float:
    """Indices are padded with 0, so padding counts as duplicates of sample 0."""
    longest = _longest(comm, indices)
    moved, labels, names = (_filled(array, longest) for array in (outputs, targets, indices))
    return right_score(comm, name, moved, labels, names)


@scores("score-filled-in-front", ALL_SAMPLES, cause="filled-and-cut-at-other-end", **ONCE)
def filled_in_front(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
    """Blocks are padded at the front but cut at the end."""
    longest = _longest(comm, indices)
    moved, labels = (_filled(array[::-1], longest)[::-1][: len(array)] for array in (outputs, targets))
    return right_score(comm, name, moved, labels, indices)
