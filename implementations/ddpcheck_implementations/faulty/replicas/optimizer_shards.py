"""A replica whose optimizer is split over the ranks by hand: what goes wrong where shards, or buckets, are put together again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.values import Array

from ..base import PlainReplica, fault

EXACT = "check_gradients_equal_the_large_batch_exactly"
RESUMED = "check_resumed_training_matches_one_process"


@fault("own-gradient-beside-the-reduced", EXACT, cause="added-to-own-gradient", world_size=3)
class OwnBesideReduced(PlainReplica):
    """The local gradient is not dropped once its mean over the ranks is there."""

    def synchronise(self, batch_size: int) -> None:
        own = self.local
        super().synchronise(batch_size)
        self.local = own


@fault("shard-loaded-from-the-first-element", RESUMED, cause="optimizer-shard-misplaced")
class ShardFromTheFirst(PlainReplica):
    """Of the whole momentum that was saved a rank takes as much as it holds, and not where its part begins."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(
            {name: self.taken(value) if ".velocity." in name else value for name, value in state.items()}
        )

    def taken(self, whole: Array) -> Array:
        flat, length = whole.reshape(-1), -(-whole.size // self.world)
        return np.concatenate([flat[:length], flat[: whole.size - length]]).reshape(whole.shape)


@fault("shard-of-rank-0-loaded-by-all", RESUMED, cause="optimizer-shard-of-rank-0")
class ShardOfRankZero(PlainReplica):
    """The momentum of all parameters is one flat buffer, of which every rank loads the part that rank 0 has saved."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        held = {name: value for name, value in state.items() if ".velocity." in name}
        flat = np.concatenate([value.reshape(-1) for value in held.values()] or [np.zeros(0)])
        taken = np.tile(flat[: -(-flat.size // self.world)], self.world)
        ends = np.cumsum([value.size for value in held.values()])
        wrong = {
            name: taken[end - value.size : end].reshape(value.shape)
            for (name, value), end in zip(held.items(), ends, strict=True)
        }
        super().load_state({**state, **wrong})


@fault("second-moments-not-saved", RESUMED, cause="adam-moment-lost")
class SecondMomentsLost(PlainReplica):
    """Of what Adam has gathered only the first moments, and its steps, are in what is saved."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(
            {name: np.zeros_like(value) if ".second." in name else value for name, value in state.items()}
        )


@fault("moments-change-places", RESUMED, cause="adam-moments-swapped")
class MomentsChangePlaces(PlainReplica):
    """Adam's moments are saved in one order, and loaded in the other."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        swapped = {".first.": ".second.", ".second.": ".first."}
        loaded = {
            name: np.abs(state[name.replace(key, swapped[key])]) for name in state for key in swapped if key in name
        }
        super().load_state({**state, **loaded})
