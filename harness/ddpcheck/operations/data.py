"""Declarations of arrays, data sets and optimizers. Operations create their values from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..models.spec import ModelSpec
from ..seeded_values import Array, Kind, key_of, numbers
from ..storage.dataclass_json import plain

PerRank = tuple[tuple[int, ...], ...]
"""A tuple of sample indices for each rank."""
Layout = Literal[
    "C",
    "F",
    "strided",
    "reversed",
    "offset",
    "columns",
    "permuted",
    "repeated",
    "read_only",
    "mixed",
    "varied",
    "shared",
]
VARIED: tuple[Layout, ...] = ("C", "strided", "F", "reversed", "offset", "columns", "read_only")
"""The memory layouts that consecutive ranks use if a tensor's layout is "varied"."""

LOUDER = 4096.0
"""Factor between loud and other targets. A power of two: a float32 sum of two gradients with this ratio keeps both."""


@plain
@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An array with different values on each rank.

    layout: C (contiguous), F (transposed memory order), strided (every other element of a larger array), reversed
    (negative stride), offset (starts in the middle of a larger buffer, not aligned to a cache line), columns (the first
    columns of a wider array), permuted (the first axis is the last in memory), repeated (one row, repeated by a stride of
    zero), read_only (not writable), mixed (F on odd ranks, C on the others), varied (each rank uses another layout of
    VARIED, starting at `seed`), shared (C; all operations of the Job with an equal tensor use the same array). step: factor
    of every value. Lattice values become multiples of the world size, so that means are exact, or get more significant
    bits than a narrower dtype holds.
    """

    kind: ClassVar[str] = "tensor"
    shape: tuple[int, ...]
    dtype: str = "float32"
    values: Kind = "lattice"
    seed: int = 0
    layout: Layout = "C"
    spread: int = 3
    step: int = 1

    def on(self, rank: int) -> Array:
        """The values of rank `rank`, C-contiguous."""
        made = numbers(self.shape, self.dtype, self.values, key_of(self.seed, rank), self.spread)
        if self.step != 1:
            made *= made.dtype.type(self.step)
        return made[:1].repeat(self.shape[0], axis=0) if self.layout == "repeated" and self.shape else made

    def layout_on(self, rank: int) -> Layout:
        """The memory layout of this rank's array; never mixed or varied."""
        if self.layout == "varied":
            return VARIED[(self.seed + rank) % len(VARIED)]
        if self.layout == "mixed":
            return "F" if rank % 2 else "C"
        return self.layout


@plain
@dataclass(frozen=True, slots=True)
class DataSpec:
    """A data set of `samples` distinct samples for a model: inputs and targets, generated from `seed`.

    poisoned: samples whose first input (first target, if inputs are ids) is replaced by NaN or infinity. loud: samples
    whose targets, unless labels, are multiplied by LOUDER. Gradients of a linear loss grow with them.
    """

    kind: ClassVar[str] = "data"
    samples: int
    values: Kind = "lattice"
    seed: int = 0
    poisoned: tuple[int, ...] = ()
    poison: Literal["nan", "inf", "-inf"] = "nan"
    loud: tuple[int, ...] = ()

    def arrays(self, model: ModelSpec) -> tuple[Array, Array]:
        """Inputs (samples, features) or ids (samples,); targets (samples, outputs) or labels (samples,)."""
        inputs, targets = self._healthy(model)
        if self.loud and targets.dtype.kind == "f":
            targets[list(self.loud)] *= LOUDER
        if self.poisoned:
            (inputs if inputs.dtype.kind == "f" else targets)[list(self.poisoned), 0] = float(self.poison)
        return inputs, targets

    def _healthy(self, model: ModelSpec) -> tuple[Array, Array]:
        if model.vocabulary is not None:
            inputs = self._words(2) % model.vocabulary
        else:
            shape = (self.samples, model.input_features)
            inputs = numbers(shape, model.dtype, self.values, key_of(self.seed, 0), 2)
        if model.loss == "cross_entropy":
            return inputs, self._words(3) % model.output_features
        shape = (self.samples, model.output_features)
        return inputs, numbers(shape, model.dtype, self.values, key_of(self.seed, 1), 2)

    def _words(self, stream: int) -> Array:
        return numbers((self.samples,), "int64", "lattice", key_of(self.seed, stream), 1 << 40)


@plain
@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """SGD: v <- momentum v + g + weight_decay p; p <- p - lr v. Adam: with bias correction, betas, eps outside the
    root, weight_decay p added to the gradient.

    averaging: if not 0, replicas keep a moving average a of each parameter p. It starts as p, and each step() ends with
    a <- averaging a + (1 - averaging) p.
    """

    kind: ClassVar[str] = "optimizer"
    name: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    averaging: float = 0.0
