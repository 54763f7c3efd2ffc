"""Samplers from bug reports: lost or shared positions, len() with side effects, and ranks without samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from ..facet_seams import PROMISED, PlainSampler, sampler
from ..registry import connecting
from .sampler_state import RESUMED

SHARED_OUT = "check_shards_are_disjoint_and_complete"


@sampler("state-of-rank-0-only", RESUMED, seen_in=("bghira/SimpleTuner#2986",), cause="resumed-order-differs")
class SavedByRankZero(PlainSampler):
    """Only rank 0 has saved a state, so the other ranks restart the epoch."""

    lacking = False

    def load_state(self, state: Mapping[str, Any]) -> None:
        if self.rank == 0:
            super().load_state(state)
        else:
            self.epoch, self.lacking = state["epoch"], True

    def stream(self) -> Sequence[int]:
        return (self.seed + self.lacking, self.epoch)


@sampler(
    "position-used-by-the-first-iterator",
    RESUMED,
    seen_in=("nvidia-cosmos/cosmos-rl#621",),
    cause="position-not-restored",
)
class UsedByFirstIterator(PlainSampler):
    """A loader makes two iterators: the first one takes the loaded position, and the second one is read."""

    def __iter__(self) -> Iterator[int]:
        super().__iter__()
        return super().__iter__()


class _SharedState(PlainSampler):
    """Counts the samples of all ranks. The checkpoint has one entry for the state, which rank 0 fills."""

    comm: Any = None

    def state(self) -> dict[str, Any]:
        step = self.given * self.world + self.rank
        return {"epoch": self.epoch, "step": int(self.comm.broadcast(np.array(step)))}

    def load_state(self, state: Mapping[str, Any]) -> None:
        given = -(-(state["step"] - self.rank) // self.world)
        super().load_state({"epoch": state["epoch"], "given": max(0, given)})


@connecting(PROMISED.of_facets("sampler"))(
    "one-state-for-all-ranks",
    RESUMED,
    seen_in=("PrimeIntellect-ai/prime-rl#1035",),
    cause="position-of-another-rank",
)
def shared_state(context: RankContext) -> Facets:
    """The checkpoint keeps one state for all ranks, that of rank 0, so a rank that has read more samples repeats some."""
    from ...numpy_sockets import tcp

    reference = tcp.connect(context)
    rank, world = context.rank, context.world_size

    def make_sampler(length: int, *, shuffle: bool, seed: int, drop_last: bool) -> PlainSampler:
        made = _SharedState(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        made.comm = reference.collectives
        return made

    return Facets(rank=rank, world_size=world, make_sampler=make_sampler, close=reference.close)


@sampler("counting-shards-again", SHARED_OUT, seen_in=("scverse/annbatch#278",), cause="sharded-twice")
class ShardedByCounting(PlainSampler):
    """len() sets the shard in the inner sampler, so samples are divided among ranks twice."""

    counted = False

    def __len__(self) -> int:
        self.counted = True
        return super().__len__()

    def share(self, order: Array) -> Array:
        own = super().share(order)
        return own[self.rank :: self.world] if self.counted else own


@sampler(
    "starved-rank-takes-all",
    SHARED_OUT,
    seen_in=("ByteDance-Seed/VeOmni#1075",),
    cause="starved-ranks-filled",
    remainder="uneven",
)
class StarvedTakesAll(PlainSampler):
    """A rank without samples reads all of them."""

    def __len__(self) -> int:
        return len(self.share(self.padded(np.arange(self.length))))

    def padded(self, order: Array) -> Array:
        return order[: self.length // self.world * self.world] if self.drop_last else order

    def share(self, order: Array) -> Array:
        own = super().share(order)
        return own if len(own) else order
