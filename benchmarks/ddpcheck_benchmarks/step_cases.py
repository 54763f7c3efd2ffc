"""Training steps to measure: models, and the growth of their batch with the world size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ddpcheck.job import DataSpec, Job, MeasureCollective, MeasureSteps, OptimizerSpec
from ddpcheck.models.spec import Delay, Linear, ModelSpec, mlp

Scaling = Literal["weak", "strong"]
Options = tuple[tuple[str, float | str], ...]

_WIDTHS: dict[str, tuple[int, ...]] = {
    "small": (784, 512, 512, 10),
    "medium": (784, 1024, 1024, 1024, 10),
    "large": (784, 4096, 4352, 1024, 10),
}
"""Layer widths of multi-layer perceptrons with 0.7, 2.9 and 25.5 million parameters."""
EMULATED = "emulated"
"""A model on an emulated accelerator, which uses no cores: 9 million parameters, and a wait in place of each layer's
work.
"""
_LAYERS, _FEATURES = 16, 768
_DELAY = Delay(forward=0.01, backward=0.02)  # together about the time of the gradients of two ranks on 1 Gbit/s

MODELS: dict[str, ModelSpec] = {
    **{name: mlp(widths, loss="cross_entropy") for name, widths in _WIDTHS.items()},
    EMULATED: ModelSpec(
        tuple(
            layer
            for number in range(1, _LAYERS + 1)
            for layer in (Linear(f"fc{number}", _FEATURES, _FEATURES if number < _LAYERS else 10), _DELAY)
        ),
        "cross_entropy",
    ),
}
NAMED = {"resnet18": 11_172_810}
"""Parameters of models that some implementations build by name, for 28 x 28 pixels."""
MODELS |= dict.fromkeys(NAMED, mlp((784, 10), loss="cross_entropy"))
_BATCH = {"small": 64, "medium": 64, "large": 32, "resnet18": 4, EMULATED: 1}
RATE = 2.0**-100
"""A learning rate so small that parameters and gradients stay constant: with 1e-6 those of EMULATED become infinite."""
BURSTS = 2  # synced, local, synced, local


@dataclass(frozen=True, slots=True)
class StepCase:
    """Steps of one model. Weak scaling keeps each rank's batch size, strong scaling that of all ranks together.

    link: the rate of the links between emulated hosts, or empty.
    """

    adapter: str
    world_size: int
    model: str
    scaling: Scaling
    options: Options = ()
    link: str = ""

    @property
    def name(self) -> str:
        told = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in self.options]
        where = [f"p{self.world_size}", *[self.link] * bool(self.link)]
        return f"step[{'-'.join([self.adapter, *where, self.model, self.scaling, *told])}]"

    @property
    def parameters(self) -> int:
        if self.model in NAMED:
            return NAMED[self.model]
        return sum(math.prod(tensor.shape) for tensor in MODELS[self.model].tensors())

    @property
    def bytes(self) -> int:
        """The bytes of all gradients together."""
        return 4 * self.parameters

    @property
    def batch(self) -> int:
        """The samples of each rank."""
        whole = _BATCH[self.model]
        return whole if self.scaling == "weak" else max(1, whole // self.world_size)

    @property
    def delays(self) -> tuple[float, float]:
        """The seconds that forward and backward of one pass wait in all."""
        found = [layer for layer in MODELS[self.model].layers if isinstance(layer, Delay)]
        return sum(layer.forward for layer in found), sum(layer.backward for layer in found)

    def job(self, parts: Sequence[MeasureSteps | MeasureCollective]) -> Job:
        """A Job of these parts."""
        samples = self.batch * self.world_size
        return Job(
            self.world_size,
            tuple(parts),
            MODELS[self.model],
            OptimizerSpec("sgd", RATE, 0.5),
            DataSpec(samples, "real"),
        )

    def steps(self, warmups: int, iterations: int, *, synced: bool = True) -> MeasureSteps:
        batch = self.batch
        shards = tuple(tuple(range(rank * batch, (rank + 1) * batch)) for rank in range(self.world_size))
        named = self.model if self.model in NAMED else None
        return MeasureSteps(shards, synced, warmups, iterations, self.options, named)

    def info(self, cores: int) -> dict[str, Any]:
        return {
            "kind": "step",
            "adapter": self.adapter,
            "world_size": self.world_size,
            "model": self.model,
            "scaling": self.scaling,
            "options": dict(self.options),
            "parameters": self.parameters,
            "bytes": self.bytes,
            "dtype": "float32",
            "batch": self.batch,
            "global_batch": self.batch * self.world_size,
            "cores": cores,
            "link": self.link,
            "delays": self.delays,
        }


def step_cases(
    adapter: str, world_size: int, models: Sequence[str], buckets: Sequence[float], link: str = ""
) -> Iterator[StepCase]:
    """Small models first, so that the peak of memory belongs to the most recent measurement.

    buckets: values of the option bucket_cap_mb (for implementations with that option), for the largest model with short
    steps.
    """
    chosen = [model for model in MODELS if model in models]
    swept = next((model for model in reversed(chosen) if model not in ("large", *NAMED)), None)
    for model in chosen:
        yield StepCase(adapter, world_size, model, "weak", link=link)
        if world_size == 1:
            continue
        if model == EMULATED:
            yield StepCase(adapter, world_size, model, "weak", (("overlap", "off"),), link)
        else:
            yield StepCase(adapter, world_size, model, "strong", link=link)
        if model == swept:
            for cap in buckets:
                yield StepCase(adapter, world_size, model, "weak", (("bucket_cap_mb", cap),), link)
