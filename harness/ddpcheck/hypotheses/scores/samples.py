"""The samples of a score by rank, and scores of some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ...causes import Cause
from ...job import Score
from ...oracle.scores import score_of
from ...seeded_values import Array

Named = Iterator[tuple[Cause, float]]
"""Causes, each with the score that it predicts."""


class SamplesByRank:
    """Each rank's outputs and targets. Duplicates belong to the first rank that has them; padding is left out."""

    def __init__(self, made: Score, before: Sequence[Score] = (), rank: int = 0) -> None:
        self.made: Score = made
        self.name: str = made.name
        self.world: int = len(made.indices)
        self.before: Sequence[Score] = before
        self.rank: int = rank
        seen: set[int] = set()
        firsts = []
        for indices in made.indices:
            mine = [index for index in dict.fromkeys(indices) if index >= 0 and index not in seen]
            seen.update(mine)
            firsts.append(tuple(mine))
        self.parts: list[tuple[Array, Array]] = [made.rows(indices)[:2] for indices in firsts]

    def of(self, indices: Iterable[Sequence[int]]) -> float:
        outputs, targets, _ = self.made.rows(tuple(index for rank in indices for index in rank))
        return score_of(self.name, outputs, targets)

    def of_ranks(self, ranks: Iterable[int]) -> float:
        outputs, targets = self.together(ranks)
        return score_of(self.name, outputs, targets)

    def of_parts(self, part: slice) -> float:
        """The score of this part of every rank's samples."""
        outputs, targets = (np.concatenate([arrays[at][part] for arrays in self.parts]) for at in (0, 1))
        return score_of(self.name, outputs, targets)

    def together(self, ranks: Iterable[int]) -> tuple[Array, Array]:
        chosen = [self.parts[rank] for rank in ranks]
        outputs, targets = (np.concatenate(arrays) for arrays in zip(*chosen, strict=True))
        return outputs, targets
