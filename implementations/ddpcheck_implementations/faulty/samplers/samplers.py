"""Samplers that lose, repeat or do not shuffle samples, and correct samplers with unusual shards."""

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
    """The sampler and the loader both divide the order among ranks."""
    return order[sampler.rank :: sampler.world][sampler.rank :: sampler.world]


@padding
def tail_replaced(sampler: PlainSampler, order: Array) -> Array:
    """Drop the tail, and pad from the start."""
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
    """set_epoch() has no effect on the order."""

    def set_epoch(self, epoch: int) -> None:
        pass


@sampler(
    "shard-before-shuffle",
    RANKS,
    seen_in=("speechbrain/speechbrain#1518",),
    cause="shuffled-within-shares",
)
class ShardBeforeShuffle(PlainSampler):
    """Samples are divided among ranks before the shuffle, so each rank keeps the same subset."""

    def order(self) -> Array:
        return np.arange(self.length)

    def share(self, order: Array) -> Array:
        mine = order[self.rank :: self.world]
        return np.random.default_rng(self.stream()).permutation(mine) if self.shuffle else mine


@sampler("tail-lost-integer-split", SHARED, cause="not-padded")
class TailLost(PlainSampler):
    """Each rank takes length // W samples; the last ones are never seen."""

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
    """The tail is padded even with drop_last."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=False)


@sampler(
    "replica-length-not-divided",
    LENGTH,
    seen_in=("galilai-group/stable-pretraining#222",),
    cause="length-computed-apart",
)
class LengthNotDivided(PlainSampler):
    """len() is divided by the world size only if there is a remainder."""

    def __len__(self) -> int:
        return super().__len__() if self.length % self.world else self.length


@sampler(
    "order-depends-on-what-was-read",
    "check_sampler_order_depends_only_on_seed_and_epoch",
    cause="order-depends-on-readings",
)
class OwnStream(PlainSampler):
    """One generator serves all epochs, so an order depends on earlier reads."""

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
    """A rank whose shard is empty raises an error."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if rank >= length > 0:
            raise IndexError(f"index {rank} out of range for a dataset of size {length}")


@sampler("too-few-refused-undeclared", SHARED, cause="few-samples-not-handled")
class TooFewRefused(PlainSampler):
    """An empty data set raises an error, which is not declared."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if length <= 0:
            raise ValueError(f"num_samples should be positive, but got {length}")


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("shuffle-buffer")
class ShuffleBuffer(PlainSampler):
    """Correct: samples pass through a shuffle buffer of 32."""

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
    """Correct if promised: nothing is padded or cut, and lengths differ by at most one."""

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world] if self.drop_last else order

    def __len__(self) -> int:
        return super().__len__() if self.drop_last else len(range(self.rank, self.length, self.world))


@sampler("needs-a-sample-for-each-rank", few_samples="refused")
class NeedsASampleForEachRank(PlainSampler):
    """Correct if promised: fewer samples than ranks raise an error."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if length < world:
            raise ValueError(f"{length} samples are too few for {world} ranks")


@sampler("always-cut", remainder="drop")
class AlwaysCut(PlainSampler):
    """Correct if promised: the tail is always cut."""

    def __len__(self) -> int:
        return self.length // self.world

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world]


# fmt: off
table(
    globals(),
    Fault("permutation-per-rank", "Each rank shuffles with another seed, so shards overlap.",
          where=always, effect=seeded(lambda own: (own.seed + own.rank, own.epoch)),
          caught_by=(SHARED, "check_shards_stay_disjoint_without_set_epoch"),
          cause="ranks-disagree-on-order",
          seen_in=("NVlabs/LongLive#71", "Lightning-AI/pytorch-lightning#17713", "open-mmlab/mmpose#1257")),
    Fault("seed-ignored", "The order ignores the seed.",
          where=always, effect=seeded(lambda own: (own.epoch,)), caught_by=SEED, cause="seed-ignored",
          seen_in=("open-mmlab/mmagic#815", "meta-pytorch/torchtune#217")),
    Fault("seed-plus-epoch", "The generator's seed is seed + epoch, so different pairs have the same order.",
          where=always, effect=seeded(lambda own: (own.seed + own.epoch,)),
          caught_by="check_sampler_does_not_add_seed_and_epoch", cause="seed-is-a-sum",
          seen_in=("goodfire-ai/spd#412",)),
    Fault("not-sharded", "Every rank reads all samples.",
          where=always, effect=all_samples, caught_by=(SHARED, LENGTH), cause="whole-data-set-on-rank",
          seen_in=("huggingface/datasets#5360", "huggingface/transformers#11254")),
    Fault("double-sharded", "Samples are divided among ranks twice, by the sampler and by the loader.",
          where=always, effect=shared_out_twice, caught_by=(SHARED, LENGTH), cause="sharded-twice",
          seen_in=("huggingface/accelerate#4276",)),
    Fault("tail-lost-and-padded", "The tail is dropped and replaced by samples from the start.",
          where=always, effect=tail_replaced,
          caught_by=SHARED, cause="tail-lost", world_size=3),
    Fault("lengths-unequal", "Shards are not padded, so their lengths differ.",
          where=~drops_last, effect=not_padded, caught_by=(SHARED, LENGTH), cause="not-padded"),
    Fault("shuffle-flag-lost", "shuffle=True has no effect.",
          where=always, effect=natural_order,
          caught_by=("check_shuffled_order_is_random", EPOCH, SEED), cause="shuffle-ignored",
          seen_in=("Lightning-AI/pytorch-lightning#2703",)),
    Fault("shuffle-forced", "shuffle=False has no effect.",
          where=always, effect=shuffled,
          caught_by="check_order_without_shuffle_is_sequential", cause="shuffled-unasked",
          seen_in=("ray-project/ray#22406",)),
    Fault("contiguous-blocks", "Correct: each rank's shard is a contiguous block.",
          where=always, effect=contiguous_block),  # correct, but unusual
)
# fmt: on
