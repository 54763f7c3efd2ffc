"""Replicas that reduce in an order, or under a name, that differs between processes."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import PlainReplica, added, fault

MANY = "check_many_small_tensors_are_trained_exactly"
EXACT = "check_gradients_equal_the_large_batch_exactly"


@fault(
    "set-order-per-process",
    MANY,
    EXACT,
    seen_in=("NVIDIA/nvalchemi-toolkit#143", "NVIDIA/earth2studio#948"),
    cause="rank-sends-other-parameter",
)
class SetOrder(PlainReplica):
    """Gradients are reduced in the order of a set of names, which differs between processes."""

    between_processes = True

    def used_somewhere(self) -> list[str]:
        return list(set(super().used_somewhere()))


@fault("gc-order-collective", MANY, seen_in=("MP-Gadget/pfft-python#5",), cause="rank-sends-other-parameter")
class ReducedByFinalizers(PlainReplica):
    """A gradient is reduced when its holder is garbage-collected, in an order that differs between ranks."""

    between_processes = True

    def synchronise(self, batch_size: int) -> None:
        done: dict[str, Array] = {}
        holders = {_Holder(self, name, done) for name in self.used_somewhere()}
        del holders
        self.synced = added(self.synced, done)
        self.local = {}


class _Holder:
    def __init__(self, replica: PlainReplica, name: str, done: dict[str, Array]) -> None:
        self.replica, self.name, self.done = replica, name, done

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder) and other.name == self.name

    def __del__(self) -> None:
        self.done[self.name] = self.replica.reduce(self.name, self.replica.mine(self.name))


@fault(
    "tensor-names-differ",
    EXACT,
    seen_in=("horovod/horovod#100", "horovod/horovod#67"),
    cause="still-exchanges-messages",
)
class NamedByRank(PlainReplica):
    """Tensors are matched by names that contain the rank, so no tensor is ever complete."""

    between_processes = True

    def reduce(self, name: str, gradient: Array) -> Array:
        own = np.frombuffer(f"{name}.{self.rank}".encode().ljust(64), np.uint8).astype(np.int64)
        while (self.comm.all_gather(own) != own).any():
            pass  # another rank may begin with another tensor, so try again
        return super().reduce(name, gradient)
