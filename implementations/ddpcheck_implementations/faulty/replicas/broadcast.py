"""Replicas that start out different, or lose something in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.values import Array

from ..base import PlainReplica, fault

PARAMETERS = "check_construction_broadcasts_parameters_from_rank_0"
FROZEN = "check_construction_broadcasts_frozen_parameters"
BUFFERS = "check_construction_broadcasts_buffers"
STATISTICS = "check_construction_broadcasts_running_statistics"
RESUMED = "check_resumed_training_matches_one_process"
RUNNING = "check_rank_0_running_statistics_follow_its_own_batches"


@fault("init-not-broadcast", PARAMETERS, FROZEN, seen_in=("facebookresearch/ParlAI#1846",), cause="own-initial-value")
class NotBroadcast(PlainReplica):
    """Every rank keeps its own initial parameters."""

    def start(self, model: ModelSpec) -> None:
        for buffer in self.network.buffers.values():
            buffer[...] = self.comm.broadcast(buffer)


@fault(
    "broadcast-by-the-first-forward",
    "check_backward_does_not_change_parameters",
    cause="broadcast-in-forward",
)
class BroadcastLate(PlainReplica):
    """The first forward pass broadcasts, construction does not, as in torch's composable replicate."""

    begun = False

    def start(self, model: ModelSpec) -> None:
        pass

    def before_forward(self) -> None:
        if not self.begun:
            for array in self.network.tensors.values():
                array[...] = self.comm.broadcast(array)
            self.begun = True
        super().before_forward()


@fault(
    "buffers-not-broadcast", BUFFERS, STATISTICS, seen_in=("facebookresearch/fairscale#68",), cause="own-initial-value"
)
class BuffersNotBroadcast(PlainReplica):
    """Parameters are broadcast, buffers are not."""

    def start(self, model: ModelSpec) -> None:
        for parameter in self.network.parameters.values():
            parameter[...] = self.comm.broadcast(parameter)


@fault("frozen-not-broadcast", FROZEN, seen_in=("horovod/horovod#1609",), cause="own-initial-value")
class FrozenNotBroadcast(PlainReplica):
    """Only what is learned is broadcast."""

    def start(self, model: ModelSpec) -> None:
        for name, array in self.network.tensors.items():
            if name in self.network.learned or name in self.network.buffers:
                array[...] = self.comm.broadcast(array)


@fault(
    "initial-values-averaged",
    "check_gradients_equal_the_large_batch_exactly",
    PARAMETERS,
    cause="loss-of-averaged-initial-values",
)
class InitialValuesAveraged(PlainReplica):
    """Replicas are made equal by the mean of what they start from, and not by rank 0's."""

    def start(self, model: ModelSpec) -> None:
        for parameter in self.network.parameters.values():
            parameter[...] = self.comm.all_reduce(parameter) / self.world
        for buffer in self.network.buffers.values():
            buffer[...] = self.comm.broadcast(buffer)


@fault("counter-through-a-float", RUNNING, cause="integers-as-float")
class CounterThroughFloat(PlainReplica):
    """Buffers are broadcast before each forward pass in one message of float64, the counter of batches among them."""

    def before_forward(self) -> None:
        for buffer in self.network.buffers.values():
            buffer[...] = self.comm.broadcast(buffer.astype(np.float64)).astype(buffer.dtype)


@fault("statistics-moved-twice", RUNNING, cause="statistics-moved-twice")
class ForwardRecomputed(PlainReplica):
    """The forward pass is computed anew for backward, in training mode, so that a batch counts twice in the statistics."""

    def backward(self, batch: Batch) -> float:
        with self.no_sync():
            held = dict(self.local)
            super().backward(batch)
            self.local = held
        return super().backward(batch)


@fault("statistics-averaged", RUNNING, seen_in=("PaddlePaddle/Paddle#32464",), cause="statistics-averaged")
class StatisticsAveraged(PlainReplica):
    """Running statistics are averaged over the ranks after each backward, which the promise does not say."""

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        for buffer in self.network.buffers.values():
            if buffer.dtype.kind == "f":
                buffer[...] = self.comm.all_reduce(buffer) / self.world


@fault(
    "checkpoint-without-momentum",
    RESUMED,
    "check_resumed_training_is_exact",
    cause="optimizer-state-lost",
)
class ForgetsMomentum(PlainReplica):
    """A checkpoint holds the parameters, and nothing of the optimizer."""

    def state(self) -> dict[str, Array]:
        return self.parameters() | self.buffers()


@fault("load-after-broadcast", RESUMED, seen_in=("horovod/horovod#1774",), cause="state-not-loaded")
class OnlyRankZeroLoads(PlainReplica):
    """Rank 0 loads the checkpoint after the replicas were made equal; the others train from new values."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        if self.rank == 0:
            super().load_state(state)


@fault("optimizer-in-float32", "check_sgd_matches_one_process", cause="fewer-bits")
class StepsInFloat32(PlainReplica):
    """Parameters pass through float32 in every step, float64 ones too."""

    def step(self) -> None:
        super().step()
        for parameter in self.network.parameters.values():
            parameter[...] = parameter.astype(np.float32)


@fault("statistics-of-the-largest-batch", RUNNING, cause="statistics-continue-from-rank")
class StatisticsOfTheLargest(PlainReplica):
    """Each forward pass begins with the running statistics of the rank that has the most samples."""

    owner = 0

    def backward(self, batch: Batch) -> float:
        if self.syncing:
            self.owner = int(np.argmax(self.comm.all_gather(np.array([len(batch.inputs)]))))
        return super().backward(batch)

    def before_forward(self) -> None:
        if self.syncing:
            for buffer in self.network.buffers.values():
                buffer[...] = self.comm.broadcast(buffer, self.owner)


@fault("statistics-stand-still-inside-no-sync", RUNNING, cause="statistics-not-moved-in-no-sync")
class StandStill(PlainReplica):
    """What is broadcast before a synchronised forward is put back after any other."""

    def backward(self, batch: Batch) -> float:
        before = self.buffers()
        loss = super().backward(batch)
        for name, buffer in self.network.buffers.items():
            buffer[...] = buffer if self.syncing else before[name]
        return loss


@fault(
    "checkpoint-with-first-statistics",
    "check_checkpoint_restores_running_statistics",
    cause="state-of-construction",
)
class FirstStatistics(PlainReplica):
    """The buffers that go into a checkpoint were looked up at construction."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.first = self.buffers()

    def state(self) -> dict[str, Array]:
        return super().state() | self.first


@fault("statistics-stand-still-in-no-sync", RUNNING, cause="statistics-not-moved-in-no-sync")
class StatisticsOfSteps(PlainReplica):
    """Running statistics are moved by the micro-batch that is synchronised, and by none inside no_sync."""

    def backward(self, batch: Batch) -> float:
        before = self.buffers()
        loss = super().backward(batch)
        if not self.syncing:
            for name, buffer in self.network.buffers.items():
                buffer[...] = before[name]
        return loss


@fault("scalar-buffers-not-saved", RESUMED, cause="state-not-loaded")
class ScalarBuffersNotSaved(PlainReplica):
    """A checkpoint has the buffers that have a dimension, and integers."""

    def state(self) -> dict[str, Array]:
        scalars = [
            name for name, buffer in self.network.buffers.items() if not buffer.ndim and buffer.dtype.kind == "f"
        ]
        return {name: array for name, array in super().state().items() if name not in scalars}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({**self.buffers(), **state})
