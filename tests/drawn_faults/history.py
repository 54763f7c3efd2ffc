"""A correct replica that records its own history, which circumstances read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Batch, Facets
from ddpcheck.contract.allowed_names import ALL_MODEL_FEATURES
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.faulty.base import PROMISED, PlainReplica


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters. They differ from the reference's, because the replica is the plain one of the
    faults.
    """
    del right
    return PROMISED.but(model_features=ALL_MODEL_FEATURES - {"sparse"}, several_replicas=True)


Condition = Callable[["Remembering"], Any]


class Remembering(PlainReplica):
    """did: the methods called so far, "local" for a backward inside no_sync(); micro: the number of these not reduced
    yet; sizes: of the batches of all ranks, in the current or last backward; number: the number of this replica in this
    process; before: the model of the previous replica.
    """

    number = 0
    before: ModelSpec | None = None

    def start(self, model: ModelSpec) -> None:
        self.did: list[str] = []
        self.micro = 0
        self.sizes: list[int] = []
        self.model = model
        super().start(model)

    @property
    def spec(self) -> OptimizerSpec:
        spec: OptimizerSpec = self.optimizer._spec  # type: ignore[attr-defined]
        return spec

    def count(self, *methods: str) -> int:
        return sum(done in methods for done in self.did)

    def since(self, *methods: str) -> list[str]:
        """The methods called after the last of these methods, or ever."""
        last = max((place for place, done in enumerate(self.did) if done in methods), default=-1)
        return self.did[last + 1 :]

    def backward(self, batch: Batch) -> float:
        self.batch = batch
        if self.syncing:
            self.sizes = self.comm.all_gather(np.array([len(batch.inputs)])).reshape(-1).tolist()
        else:
            self.micro += 1
        loss = super().backward(batch)
        self.did.append("backward" if self.syncing else "local")
        self.micro *= not self.syncing
        return loss

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.did.append("no_sync")
        with super().no_sync():
            yield

    def zero_grad(self) -> None:
        super().zero_grad()
        self.micro = 0
        self.did.append("zero_grad")

    def zero_gradients(self) -> None:
        super().zero_gradients()
        self.did.append("zero_gradients")

    def clip(self, max_norm: float) -> float:
        norm = super().clip(max_norm)
        self.did.append("clipped" if norm > max_norm else "clip")
        return norm

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        super().set_trainable(layers, trainable)
        self.did.append("unfreeze" if trainable else "freeze")

    def step(self) -> None:
        super().step()
        self.did.append("step")

    def gradients(self) -> dict[str, Array | None]:
        self.did.append("gradients")
        return super().gradients()

    def predict(self, batch: Batch) -> Array:
        self.did.append("predict")
        return super().predict(batch)

    def state(self) -> dict[str, Array]:
        self.did.append("state")
        return super().state()

    def load_state(self, state: Mapping[str, Array]) -> None:
        super().load_state(state)
        self.did.append("load_state")


CIRCUMSTANCES: dict[str, Condition] = {
    **{
        f"it is backward {number}": lambda r, number=number: r.count("backward") == number - 1  # type: ignore[misc]
        for number in (2, 3, 6)
    },
    **{
        f"{number} steps were taken": lambda r, number=number: r.count("step") == number  # type: ignore[misc]
        for number in (1, 2, 4)
    },
    "more than five steps were taken": lambda r: r.count("step") > 5,
    "it was saved before": lambda r: r.count("state"),
    "it was saved since the last step": lambda r: "state" in r.since("step"),
    "it was loaded": lambda r: r.count("load_state"),
    "it was loaded, and no step was taken since": lambda r: (
        r.count("load_state") and "step" not in r.since("load_state")
    ),
    "it predicted before": lambda r: r.count("predict"),
    "it predicted since the last step": lambda r: r.count("step") and "predict" in r.since("step"),
    "gradients were zeroed, and not taken away": lambda r: "zero_gradients" in r.since("zero_grad"),
    "gradients were never taken away": lambda r: not r.count("zero_grad", "zero_gradients"),
    "gradients were not taken away since the last step": lambda r: (
        r.count("step") and not {"zero_grad", "zero_gradients"} & {*r.since("step")}
    ),
    "nobody has read the gradients since the last backward": lambda r: (
        r.count("backward") and "gradients" not in r.since("backward", "local")
    ),
    "somebody has read the gradients since the last backward": lambda r: "gradients" in r.since("backward", "local"),
    "layers were frozen": lambda r: r.count("freeze"),
    "layers were unfrozen": lambda r: r.count("unfreeze"),
    "it is the second backward since the last step": lambda r: r.since("step", "zero_grad").count("backward") == 1,
    "micro-batches were gathered before": lambda r: r.count("local"),
    "micro-batches are gathered": lambda r: r.micro,
    "one micro-batch is gathered": lambda r: r.micro == 1,
    "three micro-batches or more are gathered": lambda r: r.micro > 2,
    "no_sync() was left without a backward in it": lambda r: r.did[-1:] == ["no_sync"],
    "gradients were clipped": lambda r: r.count("clipped"),
    "gradients were short enough": lambda r: r.count("clip"),
    "there is one parameter": lambda r: len(r.network.learned) == 1,
    "there is an odd number of parameters": lambda r: len(r.network.learned) % 2,
    "there are more than eight parameters": lambda r: len(r.network.learned) > 8,
    "a layer is frozen": lambda r: len(r.network.learned) < len(r.network.parameters),
    "there are buffers": lambda r: r.network.buffers,
    "there is batch norm": lambda r: "batch_norm" in r.model.features(),
    "there are branches": lambda r: "branch" in r.model.features(),
    "there is an embedding": lambda r: "embedding" in r.model.features(),
    "parameters are tied": lambda r: "tied" in r.model.features(),
    "the model is of float64": lambda r: r.model.dtype == "float64",
    "targets are labels": lambda r: r.model.loss == "cross_entropy",
    "the loss is scaled": lambda r: r.model.loss_scale != 1,
    "the loss has other terms": lambda r: r.model.features() & {"penalty", "activity", "auxiliary_head"},
    "it is the second replica": lambda r: r.number == 2,
    "it is the tenth replica or a later one": lambda r: r.number >= 10,
    "the replica before had the same model": lambda r: r.before == r.model,
    "this rank has one sample": lambda r: r.sizes and len(r.batch.inputs) == 1,
    "this rank has no sample": lambda r: r.sizes and len(r.batch.inputs) == 0,
    "ranks have batches of different sizes": lambda r: len({*r.sizes}) > 1,
    "the last rank has the largest batch": lambda r: r.sizes and r.sizes[-1] > max(r.sizes[:-1], default=r.sizes[-1]),
    "it is the last rank": lambda r: r.rank == r.world - 1,
    "there are three ranks": lambda r: r.world == 3,
    "the optimizer is Adam": lambda r: r.spec.name == "adam",
    "the optimizer is plain SGD": lambda r: r.spec.name == "sgd" and not r.spec.momentum,
    "there is momentum": lambda r: r.spec.momentum and r.spec.name == "sgd",
    "weights decay": lambda r: r.spec.weight_decay,
    "weights decay, and there is momentum": lambda r: r.spec.weight_decay and r.spec.momentum,
}
"""Conditions at the moment of a possible effect."""


def made_of(replica: type[Remembering], right: Facets) -> dict[str, Any]:
    """The facet, and no others."""
    number = 0
    before: ModelSpec | None = None

    def make(model: Any, initial: Mapping[str, Array], optimizer: OptimizerSpec, options: Mapping[str, Any]) -> Any:
        nonlocal number, before
        number += 1
        replica.take(options)
        drawn = type("Drawn", (replica,), {"number": number, "before": before})
        before = model
        return drawn(model, initial, optimizer, right.collectives, right.rank, right.world_size)

    return {"make_replica": make}
