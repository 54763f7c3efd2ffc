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
    outside. Yields swallowed if it did not come out of no_sync().

    second: with it, a forward pass on these samples follows the first, and one backward on the sum of both losses
    (optional_methods.TwoForwards); loss is that sum.

    weights: of each of its samples on each rank (adapter.Batch); () means that there are none.

    broken: on these ranks an exception ends it half-way (optional_methods.Breaking), and is caught outside of no_sync(). A
    ZeroGrad is next. Yields no loss, on no rank; swallowed if the exception did not come out.
    """

    kind: ClassVar[str] = "backward"
    samples: PerRank
    sync: bool = True
    branches: tuple[tuple[str, ...], ...] = ()  # active branches of each rank; () means none on any
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
    """to_zeros: gradients that are there become zeros (optional_methods.Zeroing), which a step takes; else there are none."""

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
    """Read the replica. Yields each item of `what` as a mapping of names to arrays (None: no gradient)."""

    kind: ClassVar[str] = "observe"
    what: tuple[Literal["parameters", "gradients", "buffers", "averaged"], ...] = ("parameters", "gradients", "buffers")


@plain
@dataclass(frozen=True, slots=True)
class Predict:
    """Forward in evaluation mode on the rank's samples; a rank without any is not asked. Yields outputs (batch,
    outputs).
    """

    kind: ClassVar[str] = "predict"
    samples: PerRank
    branches: tuple[tuple[str, ...], ...] = ()


@plain
@dataclass(frozen=True, slots=True)
class Save:
    """Keep every rank's replica state under a name, within this Job."""

    kind: ClassVar[str] = "save"
    name: str = "checkpoint"


@plain
@dataclass(frozen=True, slots=True)
class Resume:
    """Build a new replica (from other initial values) and load this rank's saved state into it."""

    kind: ClassVar[str] = "resume"
    name: str = "checkpoint"


@plain
@dataclass(frozen=True, slots=True)
class Switch:
    """Continue with the other of two replicas, which has its own initial values, windows and saved states. Both stay alive."""

    kind: ClassVar[str] = "switch"


def of_two_replicas(operations: Iterable[T]) -> Iterator[tuple[int, T]]:
    """Each operation with the replica that it is done with: 0 or 1, a Switch with the one that it leads to."""
    replica = 0
    for operation in operations:
        replica ^= isinstance(operation, Switch)
        yield replica, operation


@plain
@dataclass(frozen=True, slots=True)
class Remeasure:
    """Running statistics anew, of these samples of all ranks (optional_methods.Remeasuring)."""

    kind: ClassVar[str] = "remeasure"
    samples: PerRank


@plain
@dataclass(frozen=True, slots=True)
class Join:
    """Inside join() (optional_methods.Joining) each rank does zero_grad, backward and step for each of its own batches, of which
    ranks may have different numbers.
    """

    kind: ClassVar[str] = "join"
    batches: tuple[PerRank, ...]  # of each rank

    def round(self, number: int) -> PerRank:
        """The ranks' samples in one of the steps; none on a rank that has run out."""
        return tuple(batches[number] if number < len(batches) else () for batches in self.batches)

    def rounds(self) -> int:
        return max(map(len, self.batches))


@plain
@dataclass(frozen=True, slots=True)
class SetTrainable:
    """These Linear layers learn from now on, or no longer do (optional_methods.Unfreezing). Stands after a ZeroGrad."""

    kind: ClassVar[str] = "set_trainable"
    layers: tuple[str, ...]
    trainable: bool = True
