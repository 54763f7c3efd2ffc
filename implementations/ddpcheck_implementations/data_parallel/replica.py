"""A data-parallel replica: one rank's copy of the model, kept equal to those of the other ranks.

Construction broadcasts rank 0's parameters and buffers. After each backward the gradients are averaged over the ranks, so
every rank takes the same optimizer step, and replicas stay equal to the last bit. Buffers (batch norm's statistics) have no
gradient: rank 0's are broadcast before each training forward.

If samples have weights, the sums of weights are added over ranks first. Each rank's gradients are then weighted by its share, as
in the weighted mean over the samples of all ranks.

Gradients are views of buckets (buckets.py), into which backward writes them. With more than one bucket, each may be reduced as
soon as it is full, while backward continues (overlap.py). The all-reduces, their order and all bits are the same either way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch, Collectives
from ddpcheck.contract.optional_methods import Span
from ddpcheck.seeded_values import Array

from ..numpy_network import Network, OnGradient, Optimizer
from .buckets import Bucket, Empty, lay_out
from .flat_arrays import FlatBuffer
from .overlap import CommunicationThread, OverlapChoice
from .settings import DEFAULTS, EngineSettings

_OPTIMIZER = "optimizer."


class DataParallel:
    """The replica facet, made of a network, an optimizer of its parameters, and a communicator."""

    def __init__(
        self,
        network: Network,
        optimizer: Optimizer,
        collectives: Collectives,
        world_size: int,
        settings: EngineSettings = DEFAULTS,
    ) -> None:
        self._network = network
        self._optimizer = optimizer
        self._collectives = collectives
        self._world_size = world_size
        self._settings = settings
        self._empty: Empty = getattr(collectives, "empty", np.empty)
        self._in_place = hasattr(collectives, "all_reduce_in_place")
        self._flat_buffers = FlatBuffer(network.buffers)
        self._no_sync_depth = 0
        self._spans: list[tuple[int, float, float]] = []  # bucket (-1: backward), begin and end
        self._lay_out()
        self._broadcast(FlatBuffer(network.tensors), network.tensors)

    def _lay_out(self) -> None:
        learned = {name: self._network.parameters[name] for name in reversed(self._network.learned)}
        self._buckets = lay_out(learned, self._settings.bucket_bytes, self._empty)
        self._bucket_of = {name: bucket for bucket in self._buckets for name in bucket.names}
        self._choice = OverlapChoice(
            self._settings.overlap if len(self._buckets) > 1 and self._world_size > 1 else "off"
        )

    # ------------------------------------------------------------------------------------------------------ training

    def backward(self, batch: Batch, weight: float = 1.0) -> float:
        """Forward and backward on the local batch, then synchronise() unless inside no_sync().

        Gradients are multiplied by `weight`; the returned loss is not.
        """
        synchronised = not self._no_sync_depth
        if synchronised and self._network.buffers:
            self._broadcast(self._flat_buffers, self._network.buffers)
        if synchronised and batch.weights is not None:
            weight *= self._weigh(batch.weights)
        self._spans = []
        if synchronised and self._choice.overlaps():
            with CommunicationThread() as thread:
                loss = self._compute(batch, partial(self._arrived, weight, thread))
        else:
            loss = self._compute(batch, partial(self._arrived, weight, None))
            if synchronised:
                self.synchronise()
        if synchronised:
            self._choice.record(time.monotonic() - self._spans[0][1])
        return loss

    def _weigh(self, weights: Array) -> float:
        """Return this rank's factor in the mean over ranks: its share of all sample weights, times the world size.

        Gradients accumulated inside no_sync() are multiplied by the factor as well.
        """
        own = float(weights.sum(dtype=np.float64))
        total = float(self._collectives.all_reduce(np.array([own]))[0])
        factor = own * self._world_size / (total or 1.0)
        for bucket in self._buckets:
            bucket.scale_local(factor)
        return factor

    def _compute(self, batch: Batch, on_gradient: OnGradient) -> float:
        begin = time.monotonic()
        loss = self._network.backward(
            batch.inputs, batch.targets, batch.branches, on_gradient, self._place, batch.weights
        )
        self._spans.insert(0, (-1, begin, time.monotonic()))
        return loss

    def _place(self, name: str) -> Array | None:
        return self._bucket_of[name].place(name)

    def _arrived(self, weight: float, thread: CommunicationThread | None, name: str, gradient: Array | None) -> None:
        bucket = self._bucket_of[name]
        if gradient is not None:
            bucket.add(name, gradient, weight)
        if thread is not None and name == bucket.names[-1]:
            thread.submit(partial(self._reduce, bucket))

    def synchronise(self) -> None:
        """Average the local gradients over the ranks. All ranks must call it equally often.

        A parameter that only some ranks used counts as zero on the others. One that no rank used stays None on all ranks, so
        that momentum and weight decay do not change it.
        """
        for bucket in self._buckets:
            self._reduce(bucket)

    def _reduce(self, bucket: Bucket) -> None:
        begin = time.monotonic()
        bucket.reduce(self._mean)
        self._spans.append((self._buckets.index(bucket), begin, time.monotonic()))

    def _mean(self, flat: Array) -> None:
        collectives: Any = self._collectives
        if self._in_place:
            collectives.all_reduce_in_place(flat, "mean")
        else:
            flat[...] = collectives.all_reduce(flat, "mean")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward only accumulates inside. Synchronisation is restored after nesting and exceptions."""
        self._no_sync_depth += 1
        try:
            yield
        finally:
            self._no_sync_depth -= 1

    def zero_grad(self) -> None:
        for bucket in self._buckets:
            bucket.zero_grad()

    def zero_gradients(self) -> None:
        """Set existing gradients to zero. step() then still applies momentum and weight decay."""
        for bucket in self._buckets:
            bucket.zero_gradients()

    def clip(self, max_norm: float) -> float:
        """Scale gradients() so that their norm is at most max_norm; returns the norm before."""
        total = 0.0
        for gradient in self._gradients().values():
            if gradient is not None:
                # not a dot product: in BLAS, the order of additions may depend on the array's alignment, and ranks must
                # get the same bits
                total += float(np.square(gradient, dtype=np.float64).sum())
        norm = math.sqrt(total)
        if norm > max_norm:
            for bucket in self._buckets:
                bucket.scale(max_norm / norm)
        return norm

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step; a schedule sets it before each step."""
        return self._optimizer.lr

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._optimizer.lr = rate

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        """Freeze or unfreeze layers. All ranks must call it, so that their next buckets hold the same parameters."""
        self._network.set_trainable(layers, trainable)
        self._lay_out()

    def step(self) -> None:
        self._optimizer.step(self._gradients())

    def _gradients(self) -> dict[str, Array | None]:
        """Return reduced plus local gradients; local ones exist in no_sync(), and after it until the next synchronisation."""
        found: dict[str, Array | None] = {}
        for bucket in self._buckets:
            found |= bucket.gradients()
        return found

    def _broadcast(self, flat: FlatBuffer, arrays: Mapping[str, Array]) -> None:
        received = flat.unpack(self._collectives.broadcast(part, 0) for part in flat.pack(arrays))
        for name, array in received.items():
            arrays[name][...] = array

    # ----------------------------------------------------------------------------------------------------- observing

    def gradients(self) -> dict[str, Array | None]:
        return {name: None if gradient is None else gradient.copy() for name, gradient in self._gradients().items()}

    def timeline(self) -> list[Span]:
        """Return the spans of the last backward: "backward" (computation, with forward) and "all_reduce i" of bucket i."""
        named = [Span("backward" if i < 0 else f"all_reduce {i}", begin, end) for i, begin, end in self._spans]
        return sorted(named, key=lambda span: span.begin)

    def parameters(self) -> dict[str, Array]:
        return {name: parameter.copy() for name, parameter in self._network.parameters.items()}

    def buffers(self) -> dict[str, Array]:
        return {name: buffer.copy() for name, buffer in self._network.buffers.items()}

    def predict(self, batch: Batch) -> Array:
        """Return outputs in evaluation mode, without communication: one rank may evaluate alone."""
        return self._network.predict(batch.inputs, batch.branches)

    def state(self) -> dict[str, Array]:
        """Return parameters and buffers by name, and the optimizer's state as "optimizer.<kind>.<parameter>"."""
        optimizer = {_OPTIMIZER + key: value for key, value in self._optimizer.state().items()}
        return self.parameters() | self.buffers() | optimizer

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore a state() without communication: pass every rank the same state. ValueError if it does not fit the model."""
        tensors = self._network.tensors
        wrong = [name for name in tensors if name not in state or state[name].shape != tensors[name].shape]
        rest = {name: value for name, value in state.items() if name not in tensors}
        wrong += [name for name in rest if not name.startswith(_OPTIMIZER)]
        if wrong:
            raise ValueError(
                f"the state does not fit this model: {', '.join(wrong)} missing, of another shape, or unknown; "
                "build the model that it was saved from"
            )
        self._optimizer.load_state({name.removeprefix(_OPTIMIZER): value for name, value in rest.items()})
        for name, tensor in tensors.items():
            tensor[...] = state[name]
        self.zero_grad()
