"""Replicas that differ between ranks after construction, or that lose state in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always, on_rank
from ..engine.fault import Fault, table
from ..engine.modules import wrapped_by
from ..engine.replicas import (
    Tensor,
    after,
    around,
    before,
    constructing,
    frozen,
    in_place_of,
    inside_no_sync,
    is_buffer,
    is_parameter,
    not_broadcast,
    not_saved,
    nothing,
    saved,
)
from ..registry import invented

PARAMETERS = "check_construction_broadcasts_parameters_from_rank_0"
FROZEN = "check_construction_broadcasts_frozen_parameters"
BUFFERS = "check_construction_broadcasts_buffers"
STATISTICS = "check_construction_broadcasts_running_statistics"
RESUMED = "check_resumed_training_matches_one_process"
RUNNING = "check_rank_0_running_statistics_follow_its_own_batches"


@fault(
    "broadcast-by-the-first-forward",
    "check_backward_does_not_change_parameters",
    cause="broadcast-in-forward",
)
class BroadcastLate(PlainReplica):
    """Parameters are broadcast by the first forward pass, not by construction."""

    begun = False

    def start(self, model: ModelSpec) -> None:
        pass

    def before_forward(self) -> None:
        if not self.begun:
            for array in self.network.tensors.values():
                array[...] = self.comm.broadcast(array)
            self.begun = True
        super().before_forward()


@constructing
def averaged_over_ranks(tensor: Tensor) -> None:
    tensor.array[...] = tensor.replica.comm.all_reduce(tensor.array) / tensor.replica.world


@in_place_of("before_forward")
def buffers_broadcast_as_float64(replica: PlainReplica) -> None:
    """One message carries all buffers, including integer counters."""
    for buffer in replica.network.buffers.values():
        buffer[...] = replica.comm.broadcast(buffer.astype(np.float64)).astype(buffer.dtype)


@before("backward")
def forward_in_training_mode(replica: PlainReplica, batch: Batch) -> None:
    """Activations are recomputed in training mode, so the batch counts twice in running statistics."""
    with replica.no_sync():
        held = dict(replica.local)
        PlainReplica.backward(replica, batch)
        replica.local = held


@after("synchronise")
def statistics_averaged(replica: PlainReplica, batch_size: int) -> None:
    for buffer in replica.network.buffers.values():
        if buffer.dtype.kind == "f":
            buffer[...] = replica.comm.all_reduce(buffer) / replica.world


@after("step")
def parameters_rounded_to_float32(replica: PlainReplica) -> None:
    for parameter in replica.network.parameters.values():
        parameter[...] = parameter.astype(np.float32)


def in_float32(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype == np.float64 else values


@fault("statistics-of-the-largest-batch", RUNNING, cause="statistics-continue-from-rank")
class StatisticsOfTheLargest(PlainReplica):
    """Each forward pass takes the running statistics of the rank with the most samples."""

    owner = 0

    def backward(self, batch: Batch) -> float:
        if self.syncing:
            self.owner = int(np.argmax(self.comm.all_gather(np.array([len(batch.inputs)]))))
        return super().backward(batch)

    def before_forward(self) -> None:
        if self.syncing:
            for buffer in self.network.buffers.values():
                buffer[...] = self.comm.broadcast(buffer, self.owner)


@around("backward")
def statistics_restored(replica: PlainReplica, backward: Callable[[Batch], float], batch: Batch) -> float:
    before = replica.buffers()
    loss = backward(batch)
    for name, buffer in replica.network.buffers.items():
        buffer[...] = before[name]
    return loss


@fault(
    "checkpoint-with-first-statistics",
    "check_checkpoint_restores_running_statistics",
    cause="state-of-construction",
)
class FirstStatistics(PlainReplica):
    """A checkpoint holds the initial buffers instead of the present ones."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.first = self.buffers()

    def state(self) -> dict[str, Array]:
        return super().state() | self.first


@fault("scalar-buffers-not-saved", RESUMED, cause="state-not-loaded")
class ScalarBuffersNotSaved(PlainReplica):
    """A checkpoint lacks floating-point buffers without dimensions."""

    def state(self) -> dict[str, Array]:
        scalars = [
            name for name, buffer in self.network.buffers.items() if not buffer.ndim and buffer.dtype.kind == "f"
        ]
        return {name: array for name, array in super().state().items() if name not in scalars}

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state({**self.buffers(), **state})


# fmt: off
table(
    globals(),
    Fault("init-not-broadcast", "Each rank keeps its own initial parameters.",
          where=is_parameter, effect=not_broadcast,
          caught_by=(PARAMETERS, FROZEN), cause="own-initial-value", seen_in=("facebookresearch/ParlAI#1846",)),
    Fault("buffers-not-broadcast", "Each rank keeps its own initial buffers.",
          where=is_buffer, effect=not_broadcast,
          caught_by=(BUFFERS, STATISTICS), cause="own-initial-value", seen_in=("facebookresearch/fairscale#68",)),
    Fault("frozen-not-broadcast", "Each rank keeps its own frozen parameters.",
          where=frozen, effect=not_broadcast,
          caught_by=FROZEN, cause="own-initial-value", seen_in=("horovod/horovod#1609",)),
    Fault("initial-values-averaged", "The ranks' initial parameters are averaged.",
          where=is_parameter, effect=averaged_over_ranks,
          caught_by=("check_gradients_equal_the_large_batch_exactly", PARAMETERS),
          cause="loss-of-averaged-initial-values"),
    Fault("counter-through-a-float", "Buffers are broadcast as float64, including integer counters.",
          where=always, effect=buffers_broadcast_as_float64,
          caught_by=RUNNING, cause="integers-as-float"),
    Fault("statistics-moved-twice",
          "Each backward recomputes the forward pass, which updates running statistics twice.",
          where=always, effect=forward_in_training_mode,
          caught_by=RUNNING, cause="statistics-moved-twice",
          in_torch=("checkpointing-moves-statistics", wrapped_by("wrappers:ComputedAnew"), invented)),
    Fault("statistics-averaged", "Running statistics are averaged over ranks after each backward.",
          where=always, effect=statistics_averaged,
          caught_by=RUNNING, cause="statistics-averaged", seen_in=("PaddlePaddle/Paddle#32464",)),
    Fault("checkpoint-without-momentum", "A checkpoint lacks the optimizer's state.",
          where=always, effect=not_saved("optimizer."),
          caught_by=(RESUMED, "check_resumed_training_is_exact"), cause="optimizer-state-lost"),
    Fault("checkpoint-in-float32", "A checkpoint has float64 parameters and optimizer state in float32.",
          where=always, effect=saved("", in_float32),
          caught_by=RESUMED, cause="state-saved-in"),
    Fault("load-after-broadcast", "Only rank 0 loads a saved state.",
          where=~on_rank(0), effect=in_place_of("load_state")(nothing),
          caught_by=RESUMED, cause="state-not-loaded", seen_in=("horovod/horovod#1774",)),
    Fault("optimizer-in-float32", "Each step rounds parameters to float32.",
          where=always, effect=parameters_rounded_to_float32,
          caught_by="check_sgd_matches_one_process", cause="fewer-bits"),
    Fault("statistics-stand-still-inside-no-sync", "Running statistics do not change inside no_sync.",
          where=inside_no_sync, effect=statistics_restored,
          caught_by=RUNNING, cause="statistics-not-moved-in-no-sync"),
    Fault("statistics-stand-still-in-no-sync", "Running statistics do not change inside no_sync.",
          where=inside_no_sync, effect=statistics_restored,
          caught_by=RUNNING, cause="statistics-not-moved-in-no-sync"),
)
# fmt: on
