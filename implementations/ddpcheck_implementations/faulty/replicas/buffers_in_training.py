"""Buffers that training moves: which of them a rank sends, and when."""

from __future__ import annotations

from ddpcheck.contract import ReplicaSync
from ddpcheck.contract.names import MODEL_FEATURES
from ddpcheck.models.spec import ModelSpec

from ..base import PlainReplica, fault

BUFFERS = "check_training_forward_begins_with_rank_0s_buffers"
FEATURES = MODEL_FEATURES | {"replaced_buffers"}


class KeepsBuffers(PlainReplica):
    """`kept`: the buffers of construction."""

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
    """The list of buffers is made once: replaced buffers are never sent again."""

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
    """Rank 0 sends the buffers that it has; the others receive into those of construction."""

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
    """Each rank goes on with running statistics of its own, though the promise says otherwise."""

    def before_forward(self) -> None:
        pass


@fault(
    "buffers-broadcast-once-per-two-backwards",
    BUFFERS,
    cause="statistics-of-each-rank",
    replica_sync=ReplicaSync.EACH_FORWARD,
)
class EverySecondTime(PlainReplica):
    """Only every second training forward begins with rank 0's buffers."""

    forwards = 0

    def before_forward(self) -> None:
        self.forwards += 1
        if self.forwards % 2:
            super().before_forward()


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("running-statistics-of-each-rank")
class OfEachRank(PlainReplica):
    """Without the promise each rank may keep its own: an observation, and no failure."""

    def before_forward(self) -> None:
        pass


@fault("replaced-buffers-sent", model_features=FEATURES, replica_sync=ReplicaSync.EACH_FORWARD)
class SendsReplaced(PlainReplica):
    """The buffers are read anew before each broadcast."""
