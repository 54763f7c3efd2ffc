"""Which training steps to measure: models, and how their batch grows with the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from ddpcheck.job import DataSpec, Job, MeasureCollective, MeasureSteps, OptimizerSpec
from ddpcheck.model import mlp

Scaling = Literal["weak", "strong"]
Options = tuple[tuple[str, float | str], ...]

MODELS: dict[str, tuple[int, ...]] = {
    "small": (784, 512, 512, 10),
    "medium": (784, 1024, 1024, 1024, 10),
    "large": (784, 4096, 4352, 1024, 10),
}
"""Widths of multi-layer perceptrons with 0.7, 2.9 and 25.5 million parameters."""
_BATCH = {"small": 64, "medium": 64, "large": 32}
BURSTS = 2  # synced, local, synced, local


@dataclass(frozen=True, slots=True)
class StepCase:
    """Steps of one model: weak scaling keeps the batch of each rank, strong scaling that of all together."""

    adapter: str
    world_size: int
    model: str
    scaling: Scaling
    options: Options = ()

    @property
    def name(self) -> str:
        told = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in self.options]
        return f"step[{'-'.join([self.adapter, f'p{self.world_size}', self.model, self.scaling, *told])}]"

    @property
    def parameters(self) -> int:
        return sum(inputs * outputs + outputs for inputs, outputs in pairwise(MODELS[self.model]))

    @property
    def bytes(self) -> int:
        """Of all gradients together."""
        return 4 * self.parameters

    @property
    def batch(self) -> int:
        """Samples of each rank."""
        whole = _BATCH[self.model]
        return whole if self.scaling == "weak" else max(1, whole // self.world_size)

    def job(self, parts: Sequence[MeasureSteps | MeasureCollective]) -> Job:
        """A learning rate so small that numbers stay what they are, and with them the time that they take."""
        samples = self.batch * self.world_size
        return Job(
            self.world_size,
            tuple(parts),
            mlp(MODELS[self.model], loss="cross_entropy"),
            OptimizerSpec("sgd", 1e-6, 0.5),
            DataSpec(samples, "real"),
        )

    def steps(self, warmups: int, iterations: int, *, synced: bool = True) -> MeasureSteps:
        batch = self.batch
        shards = tuple(tuple(range(rank * batch, (rank + 1) * batch)) for rank in range(self.world_size))
        return MeasureSteps(shards, synced, warmups, iterations, self.options)

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
        }


def step_cases(adapter: str, world_size: int, models: Sequence[str], buckets: Sequence[float]) -> Iterator[StepCase]:
    """Small models first, so that the peak of memory belongs to the one that was measured last.

    buckets: values of the option bucket_cap_mb (of implementations that have it), for the largest model but "large".
    """
    chosen = [model for model in MODELS if model in models]
    swept = next((model for model in reversed(chosen) if model != "large"), None)
    for model in chosen:
        yield StepCase(adapter, world_size, model, "weak")
        if world_size > 1:
            yield StepCase(adapter, world_size, model, "strong")
        if world_size > 1 and model == swept:
            for cap in buckets:
                yield StepCase(adapter, world_size, model, "weak", (("bucket_cap_mb", cap),))
