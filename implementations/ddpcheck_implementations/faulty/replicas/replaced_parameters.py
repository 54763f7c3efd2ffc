"""Replicas that keep using old memory after the model has replaced a parameter's array during training."""

from __future__ import annotations

from typing import Any

from ddpcheck.contract.allowed_names import MODEL_FEATURES
from ddpcheck.models.spec import ModelSpec

from ...numpy_network import make_optimizer
from ..base import PlainReplica, fault

REPLACED = "check_parameters_with_replaced_memory_are_trained"
FEATURES = MODEL_FEATURES | {"replaced_parameters"}
CAUSE = "replaced-parameters-held"


@fault("optimizer-steps-memory-of-construction", REPLACED, cause=CAUSE, model_features=FEATURES)
class OptimizerOfConstruction(PlainReplica):
    """The optimizer steps the arrays of construction, even if the model has replaced them."""

    def __init__(self, model: ModelSpec, initial: Any, optimizer: Any, *rest: Any) -> None:
        super().__init__(model, initial, optimizer, *rest)
        self.optimizer = make_optimizer(optimizer, dict(self.network.parameters))


class StepsOnRank0(PlainReplica):
    """Rank 0 takes the step and broadcasts its parameters. kept: the arrays at construction."""

    def start(self, model: ModelSpec) -> None:
        super().start(model)
        self.kept = dict(self.network.parameters)

    def step(self) -> None:
        if self.rank == 0:
            super().step()
        for name in self.network.parameters:
            self.send(name)

    def send(self, name: str) -> None:
        parameter = self.network.parameters[name]
        parameter[...] = self.comm.broadcast(parameter)


@fault("parameters-received-in-memory-of-construction", REPLACED, cause=CAUSE, model_features=FEATURES)
class ReceivedElsewhere(StepsOnRank0):
    """Rank 0 sends its present parameters, but other ranks receive them into the arrays of construction."""

    def send(self, name: str) -> None:
        parameter = self.network.parameters[name]
        into = parameter if self.rank == 0 else self.kept[name]
        into[...] = self.comm.broadcast(parameter)


@fault("parameters-of-construction-broadcast", REPLACED, cause=CAUSE, model_features=FEATURES)
class OfConstruction(StepsOnRank0):
    """Rank 0 sends the parameters of construction; replaced ones are never sent."""

    def send(self, name: str) -> None:
        self.kept[name][...] = self.comm.broadcast(self.kept[name])


# ------------------------------------------------------------------------------------------------- correct, but unusual


@fault("parameters-of-rank-0-sent-after-steps", model_features=FEATURES)
class OfRank0ForAll(StepsOnRank0):
    """Correct: only rank 0 steps, and reads its parameters again before it sends them."""
