"""A plain and correct replica, with one all-reduce for each parameter and with seams for faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Batch, Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.job import OptimizerSpec
from ddpcheck.models.spec import ModelSpec
from ddpcheck.seeded_values import Array

from ..numpy_network import Network, make_optimizer
from .registry import Registering

PROMISED = TYPICAL.of_facets("replica").but(
    unused_parameters="synchronised", clipping=True, checkpoint=True, unfreezing=True, zeroes_gradients=True
)


class PlainReplica:
    """A correct replica. Each method is a seam.

    synced: gradients that are equal on all ranks. local: this rank's gradients since then. Neither has an entry for a
    parameter without gradient.

    between_processes: the fault shows, or can be ended, only where every rank is a process.
    """

    between_processes = False

    def __init__(
        self, model: ModelSpec, initial: Mapping[str, Array], optimizer: OptimizerSpec, comm: Any, rank: int, world: int
    ) -> None:
        self.comm, self.rank, self.world = comm, rank, world
        self.network = self.make_network(model, initial)
        self.optimizer = make_optimizer(optimizer, self.network.parameters)
        self.syncing = True
        self.synced: dict[str, Array] = {}
        self.local: dict[str, Array] = {}
        self.latest: frozenset[str] = frozenset()  # the parameters that the last backward used
        self.start(model)

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> None:
        """Refuse all options."""
        if options:
            raise ValueError(f"unknown option {', '.join(options)}: this implementation has none")

    def make_network(self, model: ModelSpec, initial: Mapping[str, Array]) -> Network:
        return Network(model, initial)

    def start(self, model: ModelSpec) -> None:
        """Broadcast rank 0's parameters and buffers."""
        for array in self.network.tensors.values():
            array[...] = self.comm.broadcast(array)

    def backward(self, batch: Batch) -> float:
        self.before_forward()
        found: dict[str, Array] = {}
        loss = self.network.backward(batch.inputs, batch.targets, batch.branches, _keep(found))
        self.local, self.latest = added(self.local, found), frozenset(found)
        if self.syncing:
            self.synchronise(len(batch.inputs))
        return loss

    def before_forward(self) -> None:
        """Broadcast rank 0's running statistics."""
        if self.syncing:
            for buffer in self.network.buffers.values():
                buffer[...] = self.comm.broadcast(buffer)

    def synchronise(self, batch_size: int) -> None:
        """Replace every gradient that some rank has by the mean over all ranks."""
        reduced = {name: self.reduce(name, self.mine(name)) for name in self.used_somewhere()}
        self.synced = added(self.synced, reduced)
        self.local = {}

    def used_somewhere(self) -> list[str]:
        flags = np.array([name in self.local for name in self.network.learned], np.float64)
        users = self.comm.all_reduce(flags) if len(flags) else flags
        return [name for name, count in zip(self.network.learned, users, strict=True) if count]

    def mine(self, name: str) -> Array:
        """The rank's local gradient, or zeros."""
        parameter = self.network.parameters[name]
        return np.asarray(self.local.get(name, np.zeros_like(parameter)), parameter.dtype)

    def reduce(self, name: str, gradient: Array) -> Array:
        return np.asarray(self.comm.all_reduce(gradient) / self.world, gradient.dtype)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.syncing = self.syncing, False
        try:
            yield
        finally:
            self.syncing = before

    def zero_grad(self) -> None:
        self.synced, self.local = {}, {}

    def zero_gradients(self) -> None:
        zeros = {name: np.zeros_like(gradient) for name, gradient in self._shown().items()}
        self.zero_grad()
        self.synced = zeros

    def clip(self, max_norm: float) -> float:
        norm = float(np.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in self._shown().values())))
        self.scale(min(1.0, max_norm / norm) if norm else 1.0)
        return norm

    def scale(self, factor: float) -> None:
        for gradients in (self.synced, self.local):
            gradients.update({name: np.asarray(g * factor, g.dtype) for name, g in gradients.items()})

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        self.network.set_trainable(layers, trainable)
        self.zero_grad()

    def step(self) -> None:
        self.optimizer.step(self._shown())

    def _shown(self) -> dict[str, Array]:
        return added(self.synced, self.local)

    def gradients(self) -> dict[str, Array | None]:
        shown = self._shown()
        return {name: np.array(shown[name]) if name in shown else None for name in self.network.learned}

    def parameters(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self.network.parameters.items()}

    def buffers(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self.network.buffers.items()}

    def predict(self, batch: Batch) -> Array:
        return self.network.predict(batch.inputs, batch.branches)

    def state(self) -> dict[str, Array]:
        optimizer = {f"optimizer.{name}": value for name, value in self.optimizer.state().items()}
        return self.parameters() | self.buffers() | optimizer

    def load_state(self, state: Mapping[str, Array]) -> None:
        for name, array in self.network.tensors.items():
            array[...] = state[name]
        rest = {name: value for name, value in state.items() if name.startswith("optimizer.")}
        self.optimizer.load_state({name.removeprefix("optimizer."): value for name, value in rest.items()})
        self.zero_grad()


class Counting(PlainReplica):
    """backwards: number of synchronised backwards, with the current one."""

    backwards = 0

    def synchronise(self, batch_size: int) -> None:
        self.backwards += 1
        super().synchronise(batch_size)


def added(first: Mapping[str, Array], second: Mapping[str, Array]) -> dict[str, Array]:
    """Sums by name. An array whose name is in only one of the two is kept."""
    sums = {name: np.asarray(first[name] + second[name]) for name in first if name in second}
    return {**first, **second, **sums}


def _keep(found: dict[str, Array]) -> Callable[[str, Array | None], None]:
    def keep(name: str, gradient: Array | None) -> None:
        if gradient is not None:
            found[name] = gradient

    return keep


@dataclass(frozen=True)
class _Connect:
    """An Adapter's connect(): the sockets reference with another replica."""

    replica: type[PlainReplica]

    def __call__(self, context: RankContext) -> Facets:
        from ..numpy_sockets import tcp  # over TCP the bytes of a fault can be counted from outside

        reference = tcp.connect(context)
        return facets(self.replica, reference.collectives, context.rank, context.world_size, reference.close)


fault: Registering[type[PlainReplica]] = Registering(_Connect, PROMISED)


def facets(
    replica: type[PlainReplica], comm: Any, rank: int, world_size: int, close: Callable[[], None] | None = None
) -> Facets:
    """One rank's facets, on any collectives."""

    def make_replica(
        model: ModelSpec | str, initial: Mapping[str, Array], optimizer: OptimizerSpec, options: Mapping[str, Any]
    ) -> PlainReplica:
        assert isinstance(model, ModelSpec)
        replica.take(options)
        return replica(model, initial, optimizer, comm, rank, world_size)

    return Facets(rank=rank, world_size=world_size, make_replica=make_replica, close=close)
