"""Samplers that lose, repeat or do not mix samples; and correct ones that deal them out in other ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.values import Array

from ..facets import PlainSampler, sampler

SHARED = "check_every_sample_goes_to_one_rank"
EPOCH = "check_set_epoch_changes_the_order"
RANKS = "check_samples_change_ranks_between_epochs"
SEED = "check_the_seed_changes_the_order"
LENGTH = "check_len_is_what_iteration_gives"


@sampler(
    "permutation-per-rank",
    SHARED,
    "check_reading_again_without_set_epoch_still_shares_out_all_samples",
    seen_in=("NVlabs/LongLive#71", "Lightning-AI/pytorch-lightning#17713", "open-mmlab/mmpose#1257"),
    words="do not agree on the order",
)
class PermutationPerRank(PlainSampler):
    """Each rank shuffles with a seed of its own and takes its stride of that."""

    def stream(self) -> Sequence[int]:
        return (self.seed + self.rank, self.epoch)


@sampler(
    "no-set-epoch",
    EPOCH,
    RANKS,
    seen_in=("pytorch/pytorch#31771", "huggingface/transformers#4398"),
    words="has no effect",
)
class NoSetEpoch(PlainSampler):
    """set_epoch is swallowed on the way to what shuffles."""

    def set_epoch(self, epoch: int) -> None:
        pass


@sampler(
    "seed-ignored", SEED, seen_in=("open-mmlab/mmagic#815", "meta-pytorch/torchtune#217"), words="the seed is ignored"
)
class SeedIgnored(PlainSampler):
    """The order depends on the epoch only."""

    def stream(self) -> Sequence[int]:
        return (self.epoch,)


@sampler(
    "seed-plus-epoch",
    "check_seed_and_epoch_are_not_simply_added",
    seen_in=("goodfire-ai/spd#412",),
    words="seeded with seed + epoch",
)
class SeedPlusEpoch(PlainSampler):
    """The generator's seed is seed + epoch: neighbouring seeds share their orders."""

    def stream(self) -> Sequence[int]:
        return (self.seed + self.epoch,)


@sampler(
    "shard-before-shuffle",
    RANKS,
    seen_in=("speechbrain/speechbrain#1518",),
    words="only shuffled within each rank's share",
)
class ShardBeforeShuffle(PlainSampler):
    """Samples are dealt out in their natural order, and each share is shuffled."""

    def order(self) -> Array:
        return np.arange(self.length)

    def share(self, order: Array) -> Array:
        mine = order[self.rank :: self.world]
        return np.random.default_rng(self.stream()).permutation(mine) if self.shuffle else mine


@sampler(
    "not-sharded",
    SHARED,
    LENGTH,
    seen_in=("huggingface/datasets#5360", "huggingface/transformers#11254"),
    words="not shared out",
)
class NotSharded(PlainSampler):
    """Every rank goes through all samples."""

    def share(self, order: Array) -> Array:
        return order


@sampler("double-sharded", SHARED, LENGTH, seen_in=("huggingface/accelerate#4276",), words="shared out once more")
class DoubleSharded(PlainSampler):
    """A rank's share is shared out again by the loader."""

    def share(self, order: Array) -> Array:
        return super().share(super().share(order))


@sampler("tail-lost-integer-split", SHARED, words="the tail is lost")
class TailLost(PlainSampler):
    """Each rank takes length // W samples; those at the end are never seen."""

    def __len__(self) -> int:
        return self.length // self.world

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world]


@sampler("tail-lost-and-padded", SHARED, words="the samples at the end of the order go to no rank", world_size=3)
class TailReplaced(PlainSampler):
    """The tail is left out, and its place filled from the start: lengths are right, samples are missing."""

    def padded(self, order: Array) -> Array:
        whole = self.length // self.world * self.world
        return np.resize(order[:whole] if whole else order, super().padded(order).size)


@sampler("lengths-unequal", SHARED, LENGTH, words="remainder rule: pad")
class LengthsUnequal(PlainSampler):
    """Nothing is padded though padding is promised: ranks run out of samples at different times."""

    def padded(self, order: Array) -> Array:
        return order[: len(self) * self.world] if self.drop_last else order


@sampler(
    "drop-last-ignored",
    "check_drop_last_cuts_the_tail_only",
    words="remainder rule: drop",
)
class DropLastIgnored(PlainSampler):
    """The tail is padded whether drop_last is set or not."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=False)


@sampler("replica-length-not-divided", LENGTH, seen_in=("galilai-group/stable-pretraining#222",), words="len(sampler)")
class LengthNotDivided(PlainSampler):
    """The length is divided by the world size only where that leaves a remainder."""

    def __len__(self) -> int:
        return super().__len__() if self.length % self.world else self.length


@sampler(
    "shuffle-flag-lost",
    "check_shuffle_really_shuffles",
    EPOCH,
    SEED,
    seen_in=("Lightning-AI/pytorch-lightning#2703",),
    words="shuffle=True is lost",
)
class NeverShuffles(PlainSampler):
    """A sampler put in place of another forgets that it should shuffle."""

    def order(self) -> Array:
        return np.arange(self.length)


@sampler(
    "shuffle-forced",
    "check_without_shuffle_the_order_is_natural",
    seen_in=("ray-project/ray#22406",),
    words="shuffle=False is lost",
)
class AlwaysShuffles(PlainSampler):
    """Evaluation data are shuffled too."""

    def order(self) -> Array:
        return np.random.default_rng(self.stream()).permutation(self.length)


@sampler(
    "order-depends-on-what-was-read",
    "check_the_same_epoch_has_the_same_order_again",
    words="depends on what was read before",
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
    "check_too_few_samples_are_refused_on_every_rank",
    words="only ranks that get no samples see",
    few_samples="refused",
)
class EmptyShardRaises(PlainSampler):
    """Shards are made without padding, and one that is empty is an error on the rank that should have it."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if rank >= length > 0:
            raise IndexError(f"index {rank} out of range for a dataset of size {length}")


@sampler("too-few-refused-undeclared", SHARED, words='promises few_samples="refused"')
class TooFewRefused(PlainSampler):
    """No samples are an error, which nobody has been told."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        if length <= 0:
            raise ValueError(f"num_samples should be positive, but got {length}")


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("contiguous-blocks")
class ContiguousBlocks(PlainSampler):
    """Rank r takes the r-th block of the order instead of a stride."""

    def share(self, order: Array) -> Array:
        size = PlainSampler.__len__(self)
        return order[size * self.rank : size * (self.rank + 1)]


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
