"""A forward and backward pass of all ranks, as kept in the oracle's history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..models.spec import ModelSpec
from ..seeded_values import Array
from .network import Shards


@dataclass(frozen=True)
class Pass:
    """One forward and backward of all ranks: the model, its values with the ranks as first axis, and the batch."""

    model: ModelSpec
    learned: Mapping[str, Array]
    fixed: Mapping[str, Array]
    shards: Shards
