"""Replicas that broadcast wrong buffers during training, or at wrong times."""

from __future__ import annotations

from ddpcheck.contract import ReplicaSync
from ddpcheck.contract.allowed_names import MODEL_FEATURES
from ddpcheck.models.spec import ModelSpec

from ..base import PlainReplica, fault

BUFFERS = "check_training_forward_begins_with_rank_0s_buffers"
FEATURES = MODEL_FEATURES | {"replaced_buffers"}


class KeepsBuffers(PlainReplica):
    """kept: the buffers at construction."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.kept = self.network.buffers


@fault(
    "buffers-of-construction-broadcast",
    BUFFERS,
    cause="replaced-buffers-not-sent",
    model_features=FEATURES,
    replica_sync=ReplicaSync.EACH_FORWARD,
)
class BuffersOfConstruction(KeepsBuffers):
    """Only the buffers of construction are broadcast; replaced ones are not."""

    def before_forward(self) -> None:
        if self.syncing:
            for buffer in self.kept.values():
                buffer[...] = self.comm.broadcast(buffer)


@fault(
    "replaced-buffers-received-elsewhere",
    BUFFERS,
    cause="replaced-buffers-not-sent",
    model_features=FEATURES,
    replica_sync=ReplicaSync.EACH_FORWARD,
)
class ReceivedElsewhere(KeepsBuffers):
    """Rank 0 sends its present buffers, but other ranks receive them into those of construction."""

    def before_forward(self) -> None:
        if self.syncing:
            for name, buffer in self.network.buffers.items():
                into = buffer if self.rank == 0 else self.kept[name]
                into[...] = self.comm.broadcast(buffer)


@fault(
    "buffers-broadcast-at-construction-only",
    BUFFERS,
    cause="statistics-of-each-rank",
    replica_sync=ReplicaSync.EACH_FORWARD,
)
class AtConstructionOnly(PlainReplica):
    """Buffers are broadcast at construction only, although every forward is promised."""

    def before_forward(self) -> None:
        pass


@fault(
    "buffers-broadcast-once-per-two-backwards",
    BUFFERS,
    cause="statistics-of-each-rank",
    replica_sync=ReplicaSync.EACH_FORWARD,
)
class EverySecondTime(PlainReplica):
    """Buffers are broadcast before every second forward only."""

    forwards = 0

    def before_forward(self) -> None:
        self.forwards += 1
        if self.forwards % 2:
            super().before_forward()


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("running-statistics-of-each-rank")
class OfEachRank(PlainReplica):
    """Correct without the promise: each rank keeps its own running statistics."""

    def before_forward(self) -> None:
        pass


@fault("replaced-buffers-sent", model_features=FEATURES, replica_sync=ReplicaSync.EACH_FORWARD)
class SendsReplaced(PlainReplica):
    """Correct: the list of buffers is read again before each broadcast."""
