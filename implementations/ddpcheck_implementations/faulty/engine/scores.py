"""The seam of scores: every rank gathers the samples of all ranks, and computes a wrong score in one circumstance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ddpcheck.oracle.scores import TERMS
from ddpcheck.seeded_values import Array

from ..facet_seams import scores
from ..metrics.scores import from_ranks, of_all_rows, on_one
from .circumstances import Circumstance

Part = tuple[Array, Array]


@dataclass(frozen=True)
class Samples:
    """The samples of all ranks in one call: outputs, targets and indices, an array of each for every rank."""

    name: str
    outputs: list[Array]
    targets: list[Array]
    indices: list[Array]

    @cached_property
    def right(self) -> float:
        return on_one(self.name, *map(np.concatenate, (self.outputs, self.targets, self.indices)))

    @property
    def parts(self) -> list[Part]:
        """Each rank's outputs and targets, without padding."""
        every = zip(self.outputs, self.targets, self.indices, strict=True)
        return [(outputs[indices >= 0], targets[indices >= 0]) for outputs, targets, indices in every]

    @property
    def there(self) -> list[Part]:
        """The parts of the ranks that have samples."""
        return [part for part in self.parts if len(part[0])]

    def together(self) -> Part:
        return joined(self.parts)

    def of(self, parts: Iterable[Part]) -> float:
        """The score of these samples."""
        return of_all_rows(self.name, *joined(parts))

    def terms(self) -> list[Array]:
        """The terms of the score's sum, for each rank that has samples."""
        return [TERMS[self.name](*part) for part in self.there]


def joined(parts: Iterable[Part]) -> Part:
    outputs, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return outputs, targets


@dataclass(frozen=True)
class ScoreEffect:
    """score: computes a wrong score."""

    score: Callable[[Samples], float]
    register = staticmethod(scores)

    def implemented(self, where: Circumstance) -> Any:
        def made(comm: Any, rank: int, name: str, outputs: Array, targets: Array, indices: Array) -> float:
            held = Samples(name, *(from_ranks(comm, array) for array in (outputs, targets, indices)))
            return float(self.score(held)) if where(held) else held.right

        return made


def scored(score: Callable[[Samples], float]) -> ScoreEffect:
    """A decorator: the function as an effect."""
    return ScoreEffect(score)


has_score = Circumstance("where there is a score", lambda held: not np.isnan(held.right))
has_no_pair = Circumstance("where one class has no sample", lambda held: held.there and np.isnan(held.right))
idle_rank = Circumstance("where a rank has no samples", lambda held: 0 < len(held.there) < len(held.parts))
