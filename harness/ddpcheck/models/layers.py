"""The layers of a ModelSpec, declared; spec.py defines their computation and the names of their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Linear:
    """replaced: a training forward moves the weight to new memory, and leaves the old memory as it is."""

    kind: ClassVar[str] = "linear"
    name: str
    inputs: int
    outputs: int
    bias: bool = True
    frozen: bool = False
    branch: str | None = None
    uses: str | None = None
    strided: bool = False
    penalty: float = 0.0
    replaced: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Activation:
    kind: ClassVar[str] = "activation"
    function: Literal["relu", "tanh"]


@plain
@dataclass(frozen=True, slots=True)
class Scale:
    """unsaved: the state dict leaves the buffer out, as with torch's `register_buffer(persistent=False)`."""

    kind: ClassVar[str] = "scale"
    name: str
    features: int
    buffer: bool = False
    wide: bool = False
    unsaved: bool = False


@plain
@dataclass(frozen=True, slots=True)
class BatchNorm:
    """replaced: a training forward gives the module new running statistics, and does not write to those that it had."""

    kind: ClassVar[str] = "batch_norm"
    name: str
    features: int
    replaced: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Embedding:
    kind: ClassVar[str] = "embedding"
    name: str
    vocabulary: int
    features: int
    sparse: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Delay:
    """Seconds that forward and backward of this layer wait."""

    kind: ClassVar[str] = "delay"
    forward: float
    backward: float


@plain
@dataclass(frozen=True, slots=True)
class Activity:
    kind: ClassVar[str] = "activity"
    coefficient: float


@plain
@dataclass(frozen=True, slots=True)
class Head:
    kind: ClassVar[str] = "head"
    name: str
    inputs: int
    outputs: int
    coefficient: float
    bias: bool = True


Layer = Linear | Activation | Scale | BatchNorm | Embedding | Delay | Activity | Head
