"""The plan of a training run (model, data, hyperparameters): one frozen value, the same on all ranks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ..contract import Capabilities, needs
from ..contract.needs import Need
from ..job import OptimizerSpec
from ..models.spec import ModelSpec, mlp
from ..running.unknown_names import did_you_mean
from .datasets import DataSet

_SIZES = re.compile(r"\d+(-\d+)+")
_HIDDEN = (128, 64)
_HOW_LONG_AND_WHERE = frozenset({"epochs", "data_dir", "checkpoint", "resume", "stop_after", "compare"})
_WHOLE = {
    **dict.fromkeys(("epochs", "batch_size", "accumulation", "stop_after"), (1, 1_000_000)),
    "warmup_epochs": (0, 1_000_000),
    "seed": (-(1 << 63), (1 << 63) - 1),
}
_LARGEST_FACTOR = 1e9


class UnusablePlan(Exception):
    """The plan cannot be trained; the message gives the reason and the remedy."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training run.

    model           sizes of a multi-layer perceptron ("64-128-64-10"), "mlp" (two hidden layers that fit the data), or
                    the name of a model that the implementation builds.
    activation      of a multi-layer perceptron. Rounding can move a sample across a relu's kink, after which training
                    takes another course. tanh has no kink, which makes the comparison with one process sharper.
    batch_size      samples of one micro-batch on one rank; a step has batch_size * accumulation * world size samples.
    accumulation    micro-batches per step; only the last one communicates.
    clip            largest global norm of the gradients; None: no clipping.
    scale_lr        multiply lr by the world size, since the batch of a step grows by this factor.
    warmup_epochs   epochs in which the learning rate rises in equal steps to its final value.
    stop_after      stop after this many epochs of the run, as if interrupted.
    options         the user's options of this implementation, by name.
    """

    data: Literal["digits", "mnist"] = "digits"
    data_dir: str | None = None
    model: str = "mlp"
    activation: Literal["tanh", "relu"] = "tanh"
    epochs: int = 5
    batch_size: int = 32
    lr: float = 0.05
    momentum: float = 0.9
    optimizer: Literal["sgd", "adam"] = "sgd"
    accumulation: int = 1
    clip: float | None = None
    scale_lr: bool = False
    warmup_epochs: int = 0
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    checkpoint: str | None = None
    resume: bool = False
    stop_after: int | None = None
    compare: bool = True
    options: tuple[tuple[str, str | int | float | bool], ...] = ()

    def __post_init__(self) -> None:
        for name, (least, most) in _WHOLE.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UnusablePlan(f"{name} is {value}; it must be from {least} to {most}")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= _LARGEST_FACTOR:
                raise UnusablePlan(f"{name} is {value}; it must be a positive number of at most {_LARGEST_FACTOR:g}")
        if not 0 <= self.momentum < 1:
            raise UnusablePlan(f"momentum is {self.momentum}; it must be at least 0 and below 1")
        if self.resume and self.checkpoint is None:
            raise UnusablePlan("--resume needs a file; name it with --checkpoint")

    @property
    def is_named(self) -> bool:
        """Whether the implementation builds the model by its name."""
        return self.model != "mlp" and not _SIZES.fullmatch(self.model)

    @property
    def last_epoch(self) -> int:
        """The number of epochs after which this run ends."""
        return self.epochs if self.stop_after is None else min(self.epochs, self.stop_after)

    def model_for(self, data: DataSet) -> ModelSpec | str:
        """The declaration of a multi-layer perceptron, or the name of a model."""
        if self.is_named:
            return self.model
        ends = (data.features, data.classes)
        sizes = (ends[0], *_HIDDEN, ends[1]) if self.model == "mlp" else tuple(map(int, self.model.split("-")))
        if min(sizes) < 1:
            raise UnusablePlan(f"a model {self.model} has a layer without features")
        if (sizes[0], sizes[-1]) != ends:
            raise UnusablePlan(
                f"a model {self.model} does not fit {data.name}: make it {ends[0]}-...-{ends[1]}, from "
                f"{ends[0]} features to {ends[1]} classes"
            )
        return mlp(sizes, loss="cross_entropy", activation=self.activation, dtype=self.dtype)

    def learning_rate(self, epoch: int, world_size: int) -> float:
        """The learning rate of an epoch. With n epochs of warm-up, epoch e of them (from 0) has (e + 1) / (n + 1) of
        the final rate.
        """
        final = self.lr * world_size if self.scale_lr else self.lr
        return final * min(1.0, (epoch + 1) / (self.warmup_epochs + 1))

    def optimizer_spec(self, lr: float) -> OptimizerSpec:
        return OptimizerSpec(self.optimizer, lr, self.momentum if self.optimizer == "sgd" else 0.0)

    def optimizer_for(self, lr: float, factor: int) -> OptimizerSpec:
        """The optimizer whose steps on `factor` times the mean gradient are the steps on the mean gradient."""
        spec = self.optimizer_spec(lr)
        if spec.name == "adam":
            return dataclasses.replace(spec, eps=spec.eps * factor)
        return dataclasses.replace(spec, lr=spec.lr / factor)

    def unmet(self, capabilities: Capabilities, world_size: int, named_models: Collection[str] = ()) -> list[str]:
        """The needs of this plan that the implementation does not promise, one sentence each. named_models: as in
        Adapter.
        """
        due: dict[Need, str] = {
            needs.replica: "",
            needs.sampler: "",
            needs.metrics: "",
            needs.replica.optimizers(self.optimizer): "",
        }
        if self.clip is not None:
            due[needs.replica.clipping] = "--clip"
        if self.warmup_epochs:
            due[needs.replica.checkpoint] = (
                "--warmup-epochs (a new learning rate needs a new replica that continues from the state of the old one)"
            )
        if self.checkpoint is not None:
            due[needs.replica.checkpoint] = "--checkpoint"
        if not self.is_named:
            due[needs.replica.replica_dtypes(self.dtype)] = ""
        if capabilities.sampler.remainder == "uneven":
            due[needs.sampler.drop_last] = "equal shards: otherwise the mean of the ranks' means is not the global mean"
        missing = [(need, lack) for need in due if (lack := need.lacking(capabilities, world_size))]
        found = [lack + (f", which {due[need]} needs" if due[need] else "") for need, lack in missing]
        if (refusal := capabilities.refuses(world_size)) is not None:
            found.append(refusal)
        if self.is_named and self.model not in named_models:
            every = f"it builds {', '.join(sorted(named_models)) or 'no model by name'}"
            names = did_you_mean(self.model, named_models) or every
            found.append(f"no model {self.model!r}; {names}; or give layer sizes, such as --model 64-128-10")
        if self.is_named and self.dtype != "float32":
            found.append(f"models with a name compute in float32, not {self.dtype}")
        return found

    def differences(self, other: TrainingPlan) -> list[str]:
        """The differences between two plans because of which neither continues the other."""
        return [
            f"{field.name} {getattr(self, field.name)} instead of {getattr(other, field.name)}"
            for field in dataclasses.fields(self)
            if field.name not in _HOW_LONG_AND_WHERE and getattr(self, field.name) != getattr(other, field.name)
        ]

    def in_words(self, world_size: int) -> str:
        """The batch sizes and hyperparameters, in words."""
        step = self.batch_size * self.accumulation * world_size
        text = f"batch {self.batch_size} per rank"
        if self.accumulation > 1:
            text += f" x {self.accumulation} accumulated"
        if step != self.batch_size:
            text += f" = {step} in all"
        final = self.learning_rate(self.warmup_epochs, world_size)
        text += f", {self.optimizer} with learning rate {final:g}"
        if self.scale_lr and world_size > 1:
            text += f" = {self.lr:g} x {world_size}"
        if self.warmup_epochs:
            text += f" after {self.warmup_epochs} epochs of warm-up"
        return text


def windows(length: int, batch_size: int, accumulation: int) -> list[list[slice]]:
    """For each step of an epoch, the slices of a rank's `length` indices that are its micro-batches.

    Micro-batches of one step have equal lengths: only then is the mean of their mean gradients the mean over their
    samples. A remainder too small for a full step is a shorter step. Up to accumulation - 1 samples of the remainder,
    which would make micro-batches unequal, are left out; with a shuffled order, other ones in every epoch.
    """
    made = []
    for start in range(0, length, batch_size * accumulation):
        each = min(batch_size, (length - start) // accumulation)
        if each:
            made.append([slice(start + i * each, start + (i + 1) * each) for i in range(accumulation)])
    return made
