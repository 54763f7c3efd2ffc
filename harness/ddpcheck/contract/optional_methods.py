"""Optional methods of facets, beside the Protocols in adapter.py. Each belongs to a promise, and is called only if promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..seeded_values import Array
from .adapter import Batch, Group


class BackwardBroken(Exception):
    """The error that the model raises in the middle of a backward (Breaking)."""


@runtime_checkable
class InPlace(Protocol):
    """CallForm.IN_PLACE, of the collectives."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group | None = None) -> None:
        """Like all_reduce, with the result in the array itself, which is C-contiguous and writeable."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """A new array of the caller's own, in memory that the transport reaches with the fewest copies.

        Freed as any other; ranks need not call it in the same order, nor for all_reduce_in_place only.
        """
        ...


class Span(NamedTuple):
    """From begin to end, in seconds of time.monotonic()."""

    name: str
    begin: float
    end: float


@runtime_checkable
class Timed(Protocol):
    """ReplicaMethod.TIMELINE, of a replica."""

    def timeline(self) -> Sequence[Span]:
        """The phases of the last backward() on this rank, by their start: "backward" without waits for other ranks, and
        "all_reduce 0", "all_reduce 1" and so on, one for each bucket.
        """
        ...


@runtime_checkable
class Unfreezing(Protocol):
    """ReplicaMethod.UNFREEZING."""

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        """From now on the Linear layers of these names are trained, or not, whatever ModelSpec says.

        Called on all ranks, between zero_grad() and the next backward(). gradients() has those of trained layers; a
        frozen layer's may be left out or None.
        """
        ...


@runtime_checkable
class Zeroing(Protocol):
    """ReplicaMethod.ZEROES_GRADIENTS."""

    def zero_gradients(self) -> None:
        """zero_grad() in its other form: an existing gradient stays, as zeros, until zero_grad(); None stays None.

        A parameter with a zero gradient takes part in step(): momentum and weight decay change it. Gradients
        accumulated inside no_sync() are dropped.
        """
        ...


@runtime_checkable
class Joining(Protocol):
    """ReplicaPromises.join."""

    def join(self) -> AbstractContextManager[Any]:
        """In this context each rank trains on its own number of batches, one step each; leaving it waits for all ranks.

        Afterwards every rank holds the same parameters. The optimizer's state need not be equal.
        """
        ...


@runtime_checkable
class Averaging(Protocol):
    """ReplicaMethod.AVERAGED_WEIGHTS; asked only where OptimizerSpec.averaging is not 0."""

    def averaged(self) -> Mapping[str, Array]:
        """Every parameter's moving average (job.OptimizerSpec); state() holds it too, for load_state()."""
        ...


@runtime_checkable
class Remeasuring(Protocol):
    """ReplicaMethod.REMEASURES_STATISTICS."""

    def remeasure(self, batch: Batch) -> None:
        """Running means and unbiased variances become those of all ranks' samples as they reach each batch norm.

        Earlier statistics are forgotten; counters of batches, parameters and gradients stay.
        """
        ...


@runtime_checkable
class Breaking(Protocol):
    """ReplicaPromises.broken_backward."""

    def break_backward(self, batch: Batch) -> float:
        """As backward(), but a BackwardBroken ends it: an error in the model, after some gradients exist and before
        others do. The exception is raised to the caller. Either all ranks do this, or the rank is inside no_sync().
        """
        ...


@runtime_checkable
class TwoForwards(Protocol):
    """ReplicaMethod.TWO_FORWARDS."""

    def backward_of_both(self, first: Batch, second: Batch) -> float:
        """Like backward(), for the sum of two batches' losses, after a forward pass on each."""
        ...


@runtime_checkable
class ResumableSampler(Protocol):
    """SamplerPromises.sampler_state."""

    def state(self) -> Mapping[str, Any]:
        """A copy of this rank's position: epoch and number of indices given, as numbers, strings and arrays."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """The next iteration gives the rest of the state's epoch, after set_epoch() to that same epoch, too; later ones and
        those of other epochs are whole. Called on a sampler made with equal arguments, on the rank that saved it.
        """
        ...


METHODS: Mapping[str, frozenset[str]] = {
    "asynchronous": frozenset({"all_reduce_async"}),
    "averaged_weights": frozenset({"averaged"}),
    "broken_backward": frozenset({"break_backward"}),
    "checkpoint": frozenset({"state", "load_state"}),
    "clipping": frozenset({"clip"}),
    "in_place": frozenset({"all_reduce_in_place", "empty"}),
    "join": frozenset({"join"}),
    "no_sync": frozenset({"no_sync"}),
    "optimizers": frozenset({"step"}),
    "remeasures_statistics": frozenset({"remeasure"}),
    "sampler_state": frozenset({"state", "load_state"}),
    "two_forwards": frozenset({"backward_of_both"}),
    "unfreezing": frozenset({"set_trainable"}),
    "zeroes_gradients": frozenset({"zero_gradients"}),
}
"""The methods of each promise that has its own, by its name."""
