"""Replicas that update the running statistics of local batch norm wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ddpcheck.models.spec import BATCH_NORM_MOMENTUM, ModelSpec
from ddpcheck.seeded_values import Array

from ...numpy_network import Network
from ...numpy_network.layers import BatchNorm
from ..base import PlainReplica
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.replicas import ReplicaEffect, in_place_of

FOLLOWS = "check_rank_0_running_statistics_follow_its_own_batches"


def tracking(track: Callable[[BatchNorm, Array, Array], None]) -> ReplicaEffect:
    """Replace the update of local batch norm's running statistics: track(norm, mean, unbiased variance)."""
    norm = type("Norm", (BatchNorm,), {"_track": track})

    def made(replica: PlainReplica, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        return Network(model, initial, norm)

    return in_place_of("make_network")(made)


def nothing_tracked(norm: BatchNorm, mean: Array, unbiased: Array) -> None:
    """Count the batch, but do not update statistics, as in evaluation mode."""
    norm.batches += 1


def with_the_opposite_momentum(norm: BatchNorm, mean: Array, unbiased: Array) -> None:
    """Swap the weights of old and new statistics."""
    for running, new in ((norm.mean, mean), (norm.variance, unbiased)):
        running *= BATCH_NORM_MOMENTUM
        running += (1 - BATCH_NORM_MOMENTUM) * new
    norm.batches += 1


class Biased(BatchNorm):
    """Tracks the biased variance, which also normalises the batch."""

    rows = 0

    def forward(self, x: Array, training: bool) -> Array:
        self.rows = len(x)
        return super().forward(x, training)

    def _track(self, mean: Array, unbiased: Array) -> None:
        super()._track(mean, unbiased * ((self.rows - 1) / self.rows))


@in_place_of("make_network")
def tracking_the_biased_variance(replica: PlainReplica, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
    return Network(model, initial, Biased)


@in_place_of("before_forward")
def mean_of_all_ranks_statistics(replica: PlainReplica) -> None:
    """Average the running statistics of all ranks; broadcast rank 0's counters."""
    for buffer in replica.network.buffers.values():
        floats = buffer.dtype.kind == "f"
        buffer[...] = replica.comm.all_reduce(buffer) / replica.world if floats else replica.comm.broadcast(buffer)


# fmt: off
table(
    globals(),
    Fault("statistics-not-tracked", "Batch norm counts batches but does not update running statistics.",
          where=always, effect=tracking(nothing_tracked),
          caught_by=FOLLOWS, cause="statistics-not-moved", world_size=1),
    Fault("statistics-with-the-opposite-momentum", "Running statistics give the old weight to the new values.",
          where=always, effect=tracking(with_the_opposite_momentum),
          caught_by=FOLLOWS, cause="statistics-momentum-swapped", world_size=1),
    Fault("biased-variance-tracked", "The running variance is the biased one.",
          where=always, effect=tracking_the_biased_variance,
          caught_by=FOLLOWS, cause="variance-biased", world_size=1),
    Fault("statistics-averaged-before-forward",
          "Each forward pass starts from the mean of the ranks' running statistics, not from rank 0's.",
          where=always, effect=mean_of_all_ranks_statistics,
          caught_by=FOLLOWS, cause="statistics-continue-from-mean"),
)
# fmt: on
