"""Scores of ranks that pad their samples with zeros for gathering, and count some of these as samples."""

from __future__ import annotations

import numpy as np

from ...causes import scores as causes
from ...oracle.scores import counted, score_of
from ...seeded_values import Array
from .samples import Named, SamplesByRank


def of_zeros(held: SamplesByRank) -> Named:
    """Zeros count as samples, have the index of sample 0, or replace samples."""
    longest = max(len(outputs) for outputs, _ in held.parts)
    shorter = [rank for rank, (outputs, _) in enumerate(held.parts) if len(outputs) < longest]
    if not shorter:
        return
    filled = [tuple(_filled(array, longest) for array in part) for part in held.parts]
    yield causes.FILL_COUNTED(), _score(held, filled)
    first = next((rank for rank, indices in enumerate(held.made.indices) if 0 in indices), None)
    if first is not None and 0 in shorter:
        every = counted(held.made.indices)
        outputs, targets, _ = held.made.rows(every)
        outputs, targets = outputs.copy(), targets.copy()
        outputs[every.index(0)], targets[every.index(0)] = 0, 0
        yield (
            causes.SAMPLE_0_FROM_FILL(),
            score_of(held.name, outputs, targets),
        )
    for rank in shorter:
        for rows in {1, len(held.parts[rank][0])} - {0}:
            others = [
                part if place != rank else tuple(_filled(a[:0], rows) for a in part)
                for place, part in enumerate(held.parts)
            ]
            yield (
                causes.FILLED_AND_CUT_AT_OTHER_END(rank=rank),
                _score(held, others),
            )


def _filled(array: Array, size: int) -> Array:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]), array.dtype)])


def _score(held: SamplesByRank, parts: list[tuple[Array, ...]]) -> float:
    outputs, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return score_of(held.name, outputs, targets)
