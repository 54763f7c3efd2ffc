"""A replica whose optimizer is split over the ranks by hand: what goes wrong where shards, or buckets, are put together again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.values import Array

from .base import PlainReplica, fault

EXACT = "check_gradients_equal_the_large_batch_exactly"
RESUMED = "check_resumed_training_goes_where_one_process_goes"


@fault("own-gradient-beside-the-reduced", "classic", EXACT, words="what was reduced is added to it", world_size=3)
class OwnBesideReduced(PlainReplica):
    """The local gradient is not dropped once its mean over the ranks is there."""

    def synchronise(self, batch_size: int) -> None:
        own = self.local
        super().synchronise(batch_size)
        self.local = own


@fault("shard-loaded-from-the-first-element", "classic", RESUMED, words="a rank's shard was loaded from a wrong place")
class ShardFromTheFirst(PlainReplica):
    """Of the whole momentum that was saved a rank takes as much as it holds, and not where its part begins."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(
            {name: self.taken(value) if ".velocity." in name else value for name, value in state.items()}
        )

    def taken(self, whole: Array) -> Array:
        flat, length = whole.reshape(-1), -(-whole.size // self.world)
        return np.concatenate([flat[:length], flat[: whole.size - length]]).reshape(whole.shape)
