"""Scores over the samples of all ranks that are not means of the ranks' scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..seeded_values import Array, hashed, key_of, numbers
from ..storage.dataclass_json import plain
from .data import PerRank

OF_NUMBERS = frozenset({"rmse"})
"""Scores whose targets are numbers. The targets of other scores are labels."""
_APART = 32
"""The factor for widely spread outputs: up to 80, whose exp is finite in float32."""
_AROUND = 16384.0
"""An offset that moves numbers so far from 0 that float32 cannot hold their squares exactly."""


@plain
@dataclass(frozen=True, slots=True)
class Score:
    """Score the samples of all ranks. Rank r holds the samples indices[r], in that order, of a data set generated from
    `seed`; index -1 is a row of padding.

    Yields score; argument_changed: whether an array that was passed has changed.

    Sample i has the label i % classes. Its largest output is larger than the others by at least 1/2, and for about two
    thirds of the samples belongs to the label. Numeric targets differ from the outputs by up to 12. Rows of padding are
    wrong and equal.

    guesses: only the first so many classes ever have the largest output; 0 means all. poisoned: a sample whose first
    output is NaN. values: lattice or real values. first: the index of the first sample; further indices follow in steps
    of `apart`. far: outputs of classes are multiplied by 32, or numbers lie around 16,384. empty: rows of padding hold
    NaN. lifted: is added to all outputs of classes, which changes no score.
    """

    kind: ClassVar[str] = "score"
    name: str
    indices: PerRank
    classes: int = 3
    seed: int = 0
    guesses: int = 0
    values: Literal["lattice", "real"] = "lattice"
    poisoned: int | None = None
    first: int = 0
    far: bool = False
    apart: int = 1
    empty: bool = False
    lifted: float = 0.0

    def given(self, rank: int) -> tuple[Array, Array, Array]:
        """The outputs, targets and indices that this rank passes."""
        outputs, targets, indices = self.rows(self.indices[rank])
        return outputs, targets, self.called(indices)

    def called(self, indices: Array) -> Array:
        """The indices of these samples; padding stays -1."""
        return np.where(indices < 0, indices, self.first + self.apart * indices)

    def rows(self, indices: tuple[int, ...]) -> tuple[Array, Array, Array]:
        """New arrays: outputs, targets and indices of these samples."""
        made = np.array(indices, np.int64)
        last = max((index for held in self.indices for index in held), default=-1)
        count = last + 2  # one more row, for index -1
        outputs, targets = self._of_numbers(count) if self.name in OF_NUMBERS else self._of_labels(count)
        if self.poisoned is not None:
            outputs[self.poisoned, 0] = np.nan
        if self.empty:
            outputs[-1] = np.nan
        return outputs[made], targets[made], made

    def _of_numbers(self, count: int) -> tuple[Array, Array]:
        shape = (count, self.classes)
        targets, errors = (numbers(shape, "float32", self.values, key_of(self.seed, stream), 3) for stream in (0, 1))
        errors *= (np.arange(count, dtype=np.float32) % 4 + 1)[:, None]
        errors[-1] = 20
        if self.far:
            targets += _AROUND
        return targets + errors, targets

    def _of_labels(self, count: int) -> tuple[Array, Array]:
        labels = np.arange(count) % self.classes
        words = hashed(count, key_of(self.seed, 2))
        guess = np.where(words % np.uint64(2) == 0, labels, (words >> np.uint64(9)) % np.uint64(self.classes))
        guess = guess.astype(np.int64) % (self.guesses or self.classes)
        guess[-1] = (labels[-1] + 1) % self.classes
        outputs = numbers((count, self.classes), "float32", self.values, key_of(self.seed, 3), 2) / 2
        largest = 3 + (words >> np.uint64(33)) % np.uint64(3)
        outputs[np.arange(count), guess] = largest.astype(np.float32) / 2
        if self.far:
            outputs *= _APART
        outputs += np.float32(self.lifted)
        return outputs, labels
