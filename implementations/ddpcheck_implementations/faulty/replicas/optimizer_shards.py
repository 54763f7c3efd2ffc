"""Replicas with a hand-written sharded optimizer that combines shards wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import PlainReplica
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import around, loaded, loading

EXACT = "check_gradients_equal_the_large_batch_exactly"
RESUMED = "check_resumed_training_matches_one_process"


@around("synchronise")
def local_gradients_kept(replica: PlainReplica, synchronise: Callable[[int], None], batch_size: int) -> None:
    own = replica.local
    synchronise(batch_size)
    replica.local = own


def shards_from_the_first_element(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    """Each rank takes the right number of elements, but from the start of the whole momentum."""

    def taken(whole: Array) -> Array:
        flat, length = whole.reshape(-1), -(-whole.size // replica.world)
        return np.concatenate([flat[:length], flat[: whole.size - length]]).reshape(whole.shape)

    return {name: taken(value) for name, value in state.items() if ".velocity." in name}


def shard_of_rank_0(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    """All momentum is one flat buffer, and every rank loads rank 0's shard of it."""
    held = {name: value for name, value in state.items() if ".velocity." in name}
    flat = np.concatenate([value.reshape(-1) for value in held.values()] or [np.zeros(0)])
    taken = np.tile(flat[: -(-flat.size // replica.world)], replica.world)
    ends = np.cumsum([value.size for value in held.values()])
    return {
        name: taken[end - value.size : end].reshape(value.shape)
        for (name, value), end in zip(held.items(), ends, strict=True)
    }


def moments_swapped(replica: PlainReplica, state: Mapping[str, Array]) -> dict[str, Array]:
    swapped = {".first.": ".second.", ".second.": ".first."}
    return {name: np.abs(state[name.replace(key, swapped[key])]) for name in state for key in swapped if key in name}


# fmt: off
table(
    globals(),
    Fault("own-gradient-beside-the-reduced", "After the reduction, the rank's own gradient is added once more.",
          where=always, effect=local_gradients_kept,
          caught_by=EXACT, cause="added-to-own-gradient", world_size=3),
    Fault("shard-loaded-from-the-first-element",
          "Each rank loads its momentum shard from the start of the whole momentum, not from its own place.",
          where=always, effect=loading(shards_from_the_first_element),
          caught_by=RESUMED, cause="optimizer-shard-misplaced"),
    Fault("shard-of-rank-0-loaded-by-all", "Every rank loads rank 0's momentum shard.",
          where=always, effect=loading(shard_of_rank_0),
          caught_by=RESUMED, cause="optimizer-shard-of-rank-0"),
    Fault("second-moments-not-saved", "A resume sets Adam's second moments to 0.",
          where=always, effect=loaded("optimizer.second.", np.zeros_like),
          caught_by=RESUMED, cause="adam-moment-lost"),
    Fault("moments-change-places", "A resume swaps Adam's first and second moments.",
          where=always, effect=loading(moments_swapped),
          caught_by=RESUMED, cause="adam-moments-swapped"),
)
# fmt: on
