"""The samples of an emulated run's micro-batches, by the run's rules."""

from __future__ import annotations

import numpy as np

from ...job import PerRank
from ...oracle.network import Shards
from ...seeded_values import Array
from .emulation_rules import Rules


def filled(micro: PerRank, first: PerRank, size: int) -> PerRank:
    """A short batch, filled up with samples of the epoch's first batch, on each rank."""
    return tuple((*rank, *(more or rank))[: max(size, len(rank))] for rank, more in zip(micro, first, strict=True))


def taken(micro: PerRank, rules: Rules) -> PerRank:
    """The used samples of a micro-batch."""
    if rules.rows == "but last":
        return tuple(rank[:-1] or rank for rank in micro)
    if rules.rows == "first twice":
        return tuple((*rank[:-1], *rank[:1]) for rank in micro)
    return micro


def shards(data: tuple[Array, Array], samples: PerRank, inputs_of: PerRank | None, rules: Rules) -> Shards:
    """The ranks' samples, padded to one length; inputs_of: the samples whose inputs they have, if not their own."""
    longest = max(map(len, samples))
    mine = [(*rank, *(0,) * (longest - len(rank))) for rank in samples]
    ended = [(*rank[-rules.turned :], *rank[: -rules.turned]) if rules.turned else rank for rank in samples]
    targets_of = [(*rank, *(0,) * (longest - len(rank))) for rank in ended]
    inputs, targets = (array.astype(np.float64) if array.dtype.kind == "f" else array for array in data)
    if rules.rounded and inputs.dtype.kind == "f":
        inputs = inputs.astype(rules.rounded).astype(np.float64)
    seen = np.array(mine if inputs_of is None else inputs_of, np.int64)
    counts = np.array([len(rank) for rank in samples])
    return Shards(inputs[seen], targets[np.array(targets_of, np.int64)], counts, {})
