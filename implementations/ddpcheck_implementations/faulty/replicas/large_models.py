"""Replicas that are wrong for large tensors only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica
from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, after_backwards, giving, last_parameter, own_value
from ..engine.replicas import around, before, loaded, sharded_step

BUCKET_BYTES = 4 << 20
PIECE = 1 << 16
TRIALS = 6


@around("step")
def first_piece_stepped(replica: PlainReplica, step: Callable[[], None]) -> None:
    flat = [array.reshape(-1) for array in replica.network.parameters.values()]
    left = [array[PIECE:].copy() for array in flat]
    step()
    for array, rest in zip(flat, left, strict=True):
        array[PIECE:] = rest


def large_ones_from_rank_0(replica: PlainReplica, owners: dict[str, int]) -> dict[str, int]:
    sizes = {name: array.size for name, array in replica.network.parameters.items()}
    return {name: 0 if sizes[name] > PIECE else owner for name, owner in owners.items()}


several_buckets = Circumstance(
    "with more than one bucket",
    lambda gradient: sum(array.nbytes for array in gradient.replica.network.parameters.values()) > BUCKET_BYTES,
)


STEP = "check_optimizer_steps_every_element_of_large_tensors"


@before("backward")
def large_local_gradients_dropped(replica: PlainReplica, batch: Batch) -> None:
    replica.local = {name: gradient for name, gradient in replica.local.items() if gradient.size <= PIECE}


@around("scale")
def first_piece_scaled(replica: PlainReplica, scale: Callable[[float], None], factor: float) -> None:
    rest = {name: gradient.reshape(-1)[PIECE:] for name, gradient in replica.synced.items()}
    scale(factor)
    for name, gradient in replica.synced.items():
        gradient.reshape(-1)[PIECE:] = rest[name]


def zeros_if_large(array: Array) -> Array:
    return np.zeros_like(array) if array.size > PIECE else array


@giving
def pieces_overlap_by_one(gradient: Gradient, mean: Array) -> Array:
    """The first element of every piece after the first is divided twice."""
    mean.reshape(-1)[PIECE::PIECE] /= gradient.world
    return mean


# fmt: off
table(
    globals(),
    Fault("pieces-overlap-by-one", "Pieces of a large gradient overlap, so boundary elements are divided twice.",
          where=always, effect=pieces_overlap_by_one,
          caught_by="check_gradients_are_the_mean_of_local_gradients",
          cause="seams-wrong"),
    Fault("optimizer-steps-first-piece", "The optimizer steps only the first piece of a large parameter.",
          where=always, effect=first_piece_stepped,
          caught_by="check_optimizer_steps_every_element_of_large_tensors"),
    Fault("large-shards-broadcast-from-rank-0",
          "In a sharded optimizer, large parameters are broadcast from rank 0, which does not own them.",
          where=always, effect=sharded_step(large_ones_from_rank_0),
          caught_by="check_optimizer_steps_every_element_of_large_tensors", cause="not-updated", checkpoint=False),
    Fault("tuned-algorithm-omits-a-bucket",
          "After six timed backwards, the chosen algorithm omits the last bucket.",
          where=several_buckets & after_backwards(TRIALS) & last_parameter,
          effect=own_value,
          caught_by="check_multi_megabyte_gradients_are_exact_in_every_backward", cause="not-reduced"),
    Fault("large-gradients-keep-the-last-micro-batch", "Large gradients keep only the last micro-batch.",
          where=always, effect=large_local_gradients_dropped,
          caught_by=STEP, cause="last-micro-batch-only"),
    Fault("clip-scales-first-piece", "Clipping scales only the first piece of a large gradient.",
          where=always, effect=first_piece_scaled,
          caught_by=STEP, cause="not-clipped"),
    Fault("large-momentum-not-loaded", "load_state() resets the optimizer state of large parameters.",
          where=always, effect=loaded("optimizer.", zeros_if_large),
          caught_by=STEP, cause="optimizer-state-lost"),
)
# fmt: on
