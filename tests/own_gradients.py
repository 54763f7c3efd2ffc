"""Replicas whose gradients stay each rank's own, with different traffic."""

from __future__ import annotations

from ddpcheck import Adapter
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.faulty import PlainReplica
from ddpcheck_implementations.faulty.base import PROMISED, _Connect


class Silent(PlainReplica):
    """No collective in a backward."""

    def synchronise(self, batch_size: int) -> None:
        pass


class Flags(PlainReplica):
    """Only the flags of used parameters are reduced."""

    def reduce(self, name: str, gradient: Array) -> Array:
        return gradient


class OtherMemory(PlainReplica):
    """The gradients are reduced, and the result is not copied back."""

    def reduce(self, name: str, gradient: Array) -> Array:
        super().reduce(name, gradient)
        return gradient


silent, flags, other_memory = (
    Adapter(replica.__name__, _Connect(replica), PROMISED) for replica in (Silent, Flags, OtherMemory)
)
