"""Samplers whose shares do not fit together: too much is padded, a sample comes twice, lengths are worked out apart."""

from __future__ import annotations

import numpy as np

from ddpcheck.values import Array

from ..facets import PlainSampler, sampler
from .samplers import LENGTH, SHARED


@sampler("length-of-the-unshuffled", LENGTH, words="worked out apart from the order")
class LengthOfTheUnshuffled(PlainSampler):
    """Without shuffle it is another class, of whose length the padding is not a part."""

    def __len__(self) -> int:
        return super().__len__() if self.shuffle else self.length // self.world


@sampler("padding-of-all-on-each", SHARED, LENGTH, words="what pads others' shares")
class PadsForAll(PlainSampler):
    """Every rank is given all that is padded, whosever share it is to fill."""

    def share(self, order: Array) -> Array:
        padding = order[self.length :]
        return (
            np.concatenate([order[: self.length][self.rank :: self.world], padding])
            if len(padding)
            else super().share(order)
        )


@sampler(
    "order-with-a-sample-twice",
    SHARED,
    "check_reading_again_without_set_epoch_still_shares_out_all_samples",
    words="reads some samples twice",
)
class FirstIsWrittenOver(PlainSampler):
    """One is to be put first, and the two are not exchanged: the first is written over."""

    def order(self) -> Array:
        order = super().order()
        if self.length:
            order[0] = order[order.argmax()]
        return order


@sampler("blocks-rounded-up", SHARED, words="a length rounded up or down", remainder="uneven", world_size=3)
class BlocksRoundedUp(PlainSampler):
    """A rank's share is a block of length / W, rounded up: what is left over for the last one may be nothing."""

    def padded(self, order: Array) -> Array:
        return order

    def share(self, order: Array) -> Array:
        size = -(-self.length // self.world)
        return order[self.rank * size : (self.rank + 1) * size]

    def __len__(self) -> int:
        return len(self.share(self.order()))


@sampler("padded-with-the-last-sample", seen_in=("huggingface/pytorch-image-models",))
class PadsWithTheLast(PlainSampler):
    """Correct: what is padded is the last sample only, as often as it takes."""

    def padded(self, order: Array) -> Array:
        missing = len(self) * self.world - self.length
        return (
            order[: self.length + missing]
            if missing <= 0 or not self.length
            else np.append(order, [order[-1]] * missing)
        )


@sampler("dealt-out-from-the-last-rank")
class FromTheLastRank(PlainSampler):
    """Correct: the first sample is the last rank's."""

    def share(self, order: Array) -> Array:
        return order[self.world - 1 - self.rank :: self.world]
