"""A wrong result of a collective on one rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...job import AllReduce, Job, TensorSpec
from ...oracle.collectives import Collective, reduced
from ...seeded_values import Array

LINEAR = ("sum", "mean")
"""Reductions that are made of sums."""


@dataclass(frozen=True)
class WrongResult:
    """members: the ranks of the collective's group. position: of the operation in the Job that returned the result."""

    job: Job
    collective: Collective
    rank: int
    members: tuple[int, ...]
    position: int | None = None

    @property
    def tensor(self) -> TensorSpec:
        return self.collective.tensor

    @property
    def place(self) -> int:
        """The rank's position in the group."""
        return self.members.index(self.rank)

    @property
    def all_reduce(self) -> str:
        """The reduction of an all-reduce; empty for other collectives."""
        return self.collective.reduction if isinstance(self.collective, AllReduce) else ""

    @cached_property
    def parts(self) -> list[Array]:
        """The members' arrays."""
        return [self.tensor.on(rank) for rank in self.members]

    @cached_property
    def total(self) -> Array:
        """The sum over the members."""
        return np.asarray(reduced(self.tensor, "sum", self.members).value)
