"""One rank's copy of the model, kept equal to the others.

At construction all ranks take over rank 0's parameters and buffers. After each backward the gradients are summed over
the ranks and divided by the world size, so that every rank takes the same optimizer step and the copies stay equal to
the last bit, with no further communication. Buffers (batch norm's statistics) have no gradient: rank 0's go to all
ranks before each training forward.

Gradients live in two places: `_reduced`, equal on all ranks, and `_local`, gathered since the last synchronisation.
Only local ones are ever reduced, and the result is added to the reduced ones. So any mixture of backwards inside and
outside of no_sync() counts every contribution exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from ddpcheck.adapter import Batch, Collectives
from ddpcheck.values import Array

from ..numpy_network import Network, Optimizer
from .flat import FlatBuffer

_OPTIMIZER = "optimizer."


class DataParallel:
    """A ddpcheck Replica over a network, an optimizer of that network's parameters, and a communicator."""

    def __init__(self, network: Network, optimizer: Optimizer, collectives: Collectives, world_size: int) -> None:
        self._network = network
        self._optimizer = optimizer
        self._collectives = collectives
        self._world_size = world_size
        self._flat_gradients = self._flat_of_learned()
        self._flat_buffers = FlatBuffer(network.buffers)
        self._no_sync_depth = 0
        self._reduced: dict[str, Array | None] = {}
        self._local: dict[str, Array | None] = {}
        self.zero_grad()
        self._broadcast(FlatBuffer(network.tensors), network.tensors)

    # ------------------------------------------------------------------------------------------------------ training

    def backward(self, batch: Batch, weight: float = 1.0) -> float:
        """Forward and backward on the local batch, then synchronise() unless inside no_sync().

        Its gradients count `weight` times; the loss that is returned is that of the batch all the same.
        """
        synchronised = not self._no_sync_depth
        if synchronised and self._network.buffers:
            self._broadcast(self._flat_buffers, self._network.buffers)
        loss = self._network.backward(batch.inputs, batch.targets, batch.branches, partial(self._accumulate, weight))
        if synchronised:
            self.synchronise()
        return loss

    def synchronise(self) -> None:
        """Replace the local gradients by their mean over the ranks. Every rank must call it the same number of times.

        A parameter that some ranks did not use counts as zero there. One that no rank used stays None on all, so that
        momentum and weight decay leave it alone on all.
        """
        flats = [self._collectives.all_reduce(flat) for flat in self._flat_gradients.pack(self._local)]
        for flat in flats:
            flat /= self._world_size
        for name, mean in self._flat_gradients.unpack(flats).items():
            before = self._reduced[name]
            if mean is not None:
                self._reduced[name] = mean if before is None else before + mean
        self._local = dict.fromkeys(self._network.learned)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward only accumulates; an exception inside, or nesting, leaves nothing switched off."""
        self._no_sync_depth += 1
        try:
            yield
        finally:
            self._no_sync_depth -= 1

    def zero_grad(self) -> None:
        self._reduced = dict.fromkeys(self._network.learned)
        self._local = dict.fromkeys(self._network.learned)

    def zero_gradients(self) -> None:
        """Zeros for the gradients that are there, which step() takes: momentum and weight decay go on."""
        zeros = {name: None if old is None else np.zeros_like(old) for name, old in self._gradients().items()}
        self.zero_grad()
        self._reduced.update(zeros)

    def clip(self, max_norm: float) -> float:
        """Scale gradients() so that their norm is at most max_norm; returns the norm before."""
        total = 0.0
        for gradient in self._gradients().values():
            if gradient is not None:
                wide = gradient.astype(np.float64)
                # a sum, not a dot product: BLAS may add in an order that depends on where the array lies in memory, and
                # ranks must get the same bits
                total += float((wide * wide).sum())
        norm = math.sqrt(total)
        if norm > max_norm:
            for gradients in (self._reduced, self._local):
                for name, gradient in gradients.items():
                    gradients[name] = (
                        None if gradient is None else np.multiply(gradient, max_norm / norm, dtype=gradient.dtype)
                    )
        return norm

    @property
    def learning_rate(self) -> float:
        """That of the next step; a schedule sets it anew before each."""
        return self._optimizer.lr

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._optimizer.lr = rate

    def set_trainable(self, layers: Sequence[str], trainable: bool) -> None:
        """These layers learn from now on, or do not. All ranks call it, so that the next message holds the same names."""
        self._network.set_trainable(layers, trainable)
        self._flat_gradients = self._flat_of_learned()
        self.zero_grad()

    def _flat_of_learned(self) -> FlatBuffer:
        return FlatBuffer({name: self._network.parameters[name] for name in self._network.learned})

    def step(self) -> None:
        self._optimizer.step(self._gradients())

    def _accumulate(self, weight: float, name: str, gradient: Array | None) -> None:
        before = self._local[name]
        if gradient is not None:
            gradient = gradient if weight == 1 else np.multiply(gradient, weight, dtype=gradient.dtype)
            self._local[name] = gradient if before is None else before + gradient

    def _gradients(self) -> dict[str, Array | None]:
        """Reduced plus local ones, which there are only in no_sync(), and after it until the next synchronisation."""
        return {
            name: local if reduced is None else reduced if local is None else reduced + local
            for (name, reduced), local in zip(self._reduced.items(), self._local.values(), strict=True)
        }

    def _broadcast(self, flat: FlatBuffer, arrays: Mapping[str, Array]) -> None:
        received = flat.unpack([self._collectives.broadcast(part, 0) for part in flat.pack(arrays)])
        for name, array in received.items():
            arrays[name][...] = array

    # ----------------------------------------------------------------------------------------------------- observing

    def gradients(self) -> dict[str, Array | None]:
        return {name: None if gradient is None else gradient.copy() for name, gradient in self._gradients().items()}

    def parameters(self) -> dict[str, Array]:
        return {name: parameter.copy() for name, parameter in self._network.parameters.items()}

    def buffers(self) -> dict[str, Array]:
        return {name: buffer.copy() for name, buffer in self._network.buffers.items()}

    def predict(self, batch: Batch) -> Array:
        """Outputs in evaluation mode. It does not communicate, so one rank may evaluate alone."""
        return self._network.predict(batch.inputs, batch.branches)

    def state(self) -> dict[str, Array]:
        """Parameters and buffers by name, the optimizer's state as "optimizer.<what>.<parameter>"."""
        optimizer = {_OPTIMIZER + key: value for key, value in self._optimizer.state().items()}
        return self.parameters() | self.buffers() | optimizer

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Go on from a state(). It does not communicate: give every rank the same one, as rank 0 saved it."""
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
