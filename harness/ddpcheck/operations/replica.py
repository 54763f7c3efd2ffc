"""Operations on a replica: adapter.Replica and ddpcheck.contract.optional_methods document each method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from ..storage.dataclass_json import plain
from .data import PerRank

T = TypeVar("T")


@plain
@dataclass(frozen=True, slots=True)
class Backward:
    """Forward and backward on the rank's samples. Yields loss: the local mean loss before reduction.

    interrupted: on these ranks an exception of the training program leaves no_sync() after the backward, and is caught
    outside. Yields swallowed if no_sync() suppressed the exception.

    second: a second forward pass on these samples follows the first, and one backward on the sum of both losses
    (optional_methods.TwoForwards); loss is that sum.

    weights: the weights of each rank's samples (adapter.Batch); () means none.

    broken: on these ranks an exception ends the backward half-way (optional_methods.Breaking), and is caught outside no_sync(). A
    ZeroGrad must follow. Yields no loss on any rank, and swallowed if no_sync() suppressed the exception.
    """

    kind: ClassVar[str] = "backward"
    samples: PerRank
    sync: bool = True
    branches: tuple[tuple[str, ...], ...] = ()  # active branches of each rank; () means none on any rank
    interrupted: tuple[int, ...] = ()
    second: PerRank = ()
    weights: tuple[tuple[float, ...], ...] = ()
    broken: tuple[int, ...] = ()

    def branches_on(self, rank: int) -> tuple[str, ...]:
        return self.branches[rank] if self.branches else ()

    def weights_on(self, rank: int) -> tuple[float, ...] | None:
        return self.weights[rank] if self.weights else None


@plain
@dataclass(frozen=True, slots=True)
class ZeroGrad:
    """to_zeros: existing gradients become zeros (optional_methods.Zeroing), and a step applies them; otherwise gradients are
    removed.
    """

    kind: ClassVar[str] = "zero_grad"
    to_zeros: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Clip:
    """Clip by global norm. Yields norm: the norm before clipping."""

    kind: ClassVar[str] = "clip"
    max_norm: float


@plain
@dataclass(frozen=True, slots=True)
class Step:
    kind: ClassVar[str] = "step"


@plain
@dataclass(frozen=True, slots=True)
class Observe:
    """Read the replica. Yields for each item of `what` a mapping of names to arrays (None: no gradient)."""

    kind: ClassVar[str] = "observe"
    what: tuple[Literal["parameters", "gradients", "buffers", "averaged"], ...] = ("parameters", "gradients", "buffers")


@plain
@dataclass(frozen=True, slots=True)
class Predict:
    """Forward in evaluation mode on the rank's samples; skipped on a rank without samples, unless `idle`.

    Yields outputs, of shape (batch, outputs).
    """

    kind: ClassVar[str] = "predict"
    samples: PerRank
    branches: tuple[tuple[str, ...], ...] = ()
    idle: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Save:
    """Keep every rank's replica state under a name, within this Job."""

    kind: ClassVar[str] = "save"
    name: str = "checkpoint"


@plain
@dataclass(frozen=True, slots=True)
class Resume:
    """Build a new replica, with other initial values, and load this rank's saved state into it."""

    kind: ClassVar[str] = "resume"
    name: str = "checkpoint"


@plain
@dataclass(frozen=True, slots=True)
class Switch:
    """Continue with the other of two replicas. Each has its own initial values, windows and saved states; both stay
    alive.
    """

    kind: ClassVar[str] = "switch"


def of_two_replicas(operations: Iterable[T]) -> Iterator[tuple[int, T]]:
    """Each operation with the number of its replica, 0 or 1. A Switch has the number of the replica that it switches
    to.
    """
    replica = 0
    for operation in operations:
        replica ^= isinstance(operation, Switch)
        yield replica, operation


@plain
@dataclass(frozen=True, slots=True)
class Remeasure:
    """Measure running statistics anew, from these samples of all ranks (optional_methods.Remeasuring)."""

    kind: ClassVar[str] = "remeasure"
    samples: PerRank


@plain
@dataclass(frozen=True, slots=True)
class Join:
    """Inside join() (optional_methods.Joining) each rank does zero_grad, backward and step for each of its own batches. Ranks may
    have different numbers of batches.
    """

    kind: ClassVar[str] = "join"
    batches: tuple[PerRank, ...]  # the batches of each rank

    def round(self, number: int) -> PerRank:
        """The ranks' samples in one of the steps; () on a rank without further batches."""
        return tuple(batches[number] if number < len(batches) else () for batches in self.batches)

    def rounds(self) -> int:
        return max(map(len, self.batches))


@plain
@dataclass(frozen=True, slots=True)
class SetTrainable:
    """These Linear layers are trained from now on, or are frozen (optional_methods.Unfreezing). Must follow a ZeroGrad."""

    kind: ClassVar[str] = "set_trainable"
    layers: tuple[str, ...]
    trainable: bool = True
