"""Scores whose ranks fill up their samples with zeros, so that all blocks can be gathered, and take some of these for samples."""

from __future__ import annotations

import numpy as np

from ddpcheck.oracle.scores import score_of
from ddpcheck.values import Array

from .score_held import Named, SamplesByRank, counted


def of_zeros(held: SamplesByRank) -> Named:
    """Zeros that count, that have the index of sample 0, or that stand where samples should."""
    longest = max(len(outputs) for outputs, _ in held.parts)
    shorter = [rank for rank, (outputs, _) in enumerate(held.parts) if len(outputs) < longest]
    if not shorter:
        return
    filled = [tuple(_filled(array, longest) for array in part) for part in held.parts]
    yield "zeros, which fill up the blocks of ranks with fewer samples, count as samples", _score(held, filled)
    first = next((rank for rank, indices in enumerate(held.made.indices) if 0 in indices), None)
    if first is not None and 0 in shorter:
        every = counted(held.made.indices)
        outputs, targets, _ = held.made.rows(every)
        outputs, targets = outputs.copy(), targets.copy()
        outputs[every.index(0)], targets[every.index(0)] = 0, 0
        yield (
            "sample 0 is taken from the zeros that fill up the blocks of ranks with fewer samples: their index is 0, too",
            score_of(held.name, outputs, targets),
        )
    for rank in shorter:
        for rows in {1, len(held.parts[rank][0])} - {0}:
            others = [
                part if place != rank else tuple(_filled(a[:0], rows) for a in part)
                for place, part in enumerate(held.parts)
            ]
            yield (
                f"zeros stand in the place of rank {rank}'s samples: its block is filled up at one end, and cut at the other",
                _score(held, others),
            )


def _filled(array: Array, size: int) -> Array:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


def _score(held: SamplesByRank, parts: list[tuple[Array, ...]]) -> float:
    outputs, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return score_of(held.name, outputs, targets)
