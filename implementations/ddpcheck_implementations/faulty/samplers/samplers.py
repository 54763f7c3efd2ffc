"""Samplers that lose, repeat or do not mix samples; and correct ones that deal them out in other ways."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import drops_last, natural_order, padding, seeded, sharing, shuffled
from ..facet_seams import PlainSampler, sampler

SHARED = "check_shards_are_disjoint_and_complete"
EPOCH = "check_set_epoch_changes_the_order"
RANKS = "check_samples_change_ranks_between_epochs"
SEED = "check_the_seed_changes_the_order"
LENGTH = "check_sampler_len_matches_iteration"


@sharing
def all_samples(sampler: PlainSampler, order: Array) -> Array:
    return order


@sharing
def shared_out_twice(sampler: PlainSampler, order: Array) -> Array:
    """Once by the sampler, and once by the loader."""
    return order[sampler.rank :: sampler.world][sampler.rank :: sampler.world]


@padding
def tail_replaced(sampler: PlainSampler, order: Array) -> Array:
    """It is left out, and its place filled from the start."""
    whole = sampler.length // sampler.world * sampler.world
    return np.resize(order[:whole] if whole else order, PlainSampler.padded(sampler, order).size)


@padding
def not_padded(sampler: PlainSampler, order: Array) -> Array:
    return order


@sharing
def contiguous_block(sampler: PlainSampler, order: Array) -> Array:
    size = PlainSampler.__len__(sampler)
    return order[size * sampler.rank : size * (sampler.rank + 1)]


@sampler(
    "no-set-epoch",
    EPOCH,
    RANKS,
    seen_in=("pytorch/pytorch#31771", "huggingface/transformers#4398"),
    cause="set-epoch-ignored",
)
class NoSetEpoch(PlainSampler):
    """set_epoch is swallowed on the way to what shuffles."""

    def set_epoch(self, epoch: int) -> None:
        pass


@sampler(
    "shard-before-shuffle",
    RANKS,
    seen_in=("speechbrain/speechbrain#1518",),
    cause="shuffled-within-shares",
)
class ShardBeforeShuffle(PlainSampler):
    """Samples are dealt out in their natural order, and each share is shuffled."""

    def order(self) -> Array:
        return np.arange(self.length)

    def share(self, order: Array) -> Array:
        mine = order[self.rank :: self.world]
        return np.random.default_rng(self.stream()).permutation(mine) if self.shuffle else mine


@sampler("tail-lost-integer-split", SHARED, cause="not-padded")
class TailLost(PlainSampler):
    """Each rank takes length // W samples; those at the end are never seen."""

    def __len__(self) -> int:
        return self.length // self.world

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world]


@sampler(
    "drop-last-ignored",
    "check_drop_last_drops_only_the_tail",
    cause="tail-padded-not-cut",
)
class DropLastIgnored(PlainSampler):
    """The tail is padded whether drop_last is set or not."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=False)


@sampler(
    "replica-length-not-divided",
    LENGTH,
    seen_in=("galilai-group/stable-pretraining#222",),
    cause="length-computed-apart",
)
class LengthNotDivided(PlainSampler):
    """The length is divided by the world size only where that leaves a remainder."""

    def __len__(self) -> int:
        return super().__len__() if self.length % self.world else self.length


@sampler(
    "order-depends-on-what-was-read",
    "check_sampler_order_depends_only_on_seed_and_epoch",
    cause="order-depends-on-readings",
)
class OwnStream(PlainSampler):
    """One generator for all epochs: all ranks agree, but a resumed run does not go through the same orders."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self.generator = np.random.default_rng(seed)

    def order(self) -> Array:
        return self.generator.permutation(self.length) if self.shuffle else np.arange(self.length)


@sampler(
    "empty-shard-raises",
    "check_too_few_samples_raise_on_every_rank_or_none",
    cause="few-samples-refused-by-some",
    few_samples="refused",
)
class EmptyShardRaises(PlainSampler):
    """Shards are made without padding, and one that is empty is an error on the rank that should have it."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if rank >= length > 0:
            raise IndexError(f"index {rank} out of range for a dataset of size {length}")


@sampler("too-few-refused-undeclared", SHARED, cause="few-samples-not-handled")
class TooFewRefused(PlainSampler):
    """No samples are an error, which nobody has been told."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if length <= 0:
            raise ValueError(f"num_samples should be positive, but got {length}")


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("shuffle-buffer")
class ShuffleBuffer(PlainSampler):
    """A stream goes through a buffer of 32 samples, of which one is taken at random each time."""

    def order(self) -> Array:
        if not self.shuffle:
            return super().order()
        generator = np.random.default_rng(self.stream())
        buffer, order = list(range(min(32, self.length))), []
        places = generator.integers(32, size=self.length - len(buffer)).tolist()
        for place, index in zip(places, range(len(buffer), self.length), strict=True):
            order.append(buffer[place])
            buffer[place] = index
        return np.array([*order, *generator.permutation(buffer)], np.int64)


@sampler("uneven-lengths", remainder="uneven")
class UnevenLengths(PlainSampler):
    """Nothing is padded or cut, as promised: lengths differ by one."""

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world] if self.drop_last else order

    def __len__(self) -> int:
        return super().__len__() if self.drop_last else len(range(self.rank, self.length, self.world))


@sampler("needs-a-sample-for-each-rank", few_samples="refused")
class NeedsASampleForEachRank(PlainSampler):
    """Fewer samples than ranks are an error, as promised."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if length < world:
            raise ValueError(f"{length} samples are too few for {world} ranks")


@sampler("always-cut", remainder="drop")
class AlwaysCut(PlainSampler):
    """The tail is cut whether drop_last is set or not, as promised."""

    def __len__(self) -> int:
        return self.length // self.world

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world]


# fmt: off
table(
    globals(),
    Fault("permutation-per-rank", where=always, effect=seeded(lambda own: (own.seed + own.rank, own.epoch)),
          caught_by=(SHARED, "check_shards_stay_disjoint_without_set_epoch"),
          cause="ranks-disagree-on-order",
          seen_in=("NVlabs/LongLive#71", "Lightning-AI/pytorch-lightning#17713", "open-mmlab/mmpose#1257")),
    Fault("seed-ignored", where=always, effect=seeded(lambda own: (own.epoch,)), caught_by=SEED, cause="seed-ignored",
          seen_in=("open-mmlab/mmagic#815", "meta-pytorch/torchtune#217")),
    Fault("seed-plus-epoch", where=always, effect=seeded(lambda own: (own.seed + own.epoch,)),
          caught_by="check_sampler_does_not_add_seed_and_epoch", cause="seed-is-a-sum",
          seen_in=("goodfire-ai/spd#412",)),
    Fault("not-sharded", where=always, effect=all_samples, caught_by=(SHARED, LENGTH), cause="whole-data-set-on-rank",
          seen_in=("huggingface/datasets#5360", "huggingface/transformers#11254")),
    Fault("double-sharded", where=always, effect=shared_out_twice, caught_by=(SHARED, LENGTH), cause="sharded-twice",
          seen_in=("huggingface/accelerate#4276",)),
    Fault("tail-lost-and-padded", where=always, effect=tail_replaced,
          caught_by=SHARED, cause="tail-lost", world_size=3),
    Fault("lengths-unequal", where=~drops_last, effect=not_padded, caught_by=(SHARED, LENGTH), cause="not-padded"),
    Fault("shuffle-flag-lost", where=always, effect=natural_order,
          caught_by=("check_shuffled_order_is_random", EPOCH, SEED), cause="shuffle-ignored",
          seen_in=("Lightning-AI/pytorch-lightning#2703",)),
    Fault("shuffle-forced", where=always, effect=shuffled,
          caught_by="check_order_without_shuffle_is_sequential", cause="shuffled-unasked",
          seen_in=("ray-project/ray#22406",)),
    Fault("contiguous-blocks", where=always, effect=contiguous_block),  # correct, but unusual
)
# fmt: on
