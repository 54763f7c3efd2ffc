"""Records buffers whose values a loss depends on in training, such as a queue of keys, and not only their own updates.

A buffer is used where an operation takes it, or a value that was computed from it, together with a tensor that needs a gradient.
A buffer that is overwritten as a whole before its use, as a mask that is drawn anew, keeps nothing from one step to the next.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ...pytorch.pending_collectives import place_of
from ..recorded_process import Run
from . import script_objects

_OVERWRITES = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"})


class UsedBuffers:
    """The buffers of the modules by the place of their storage, renewed in each step, and the values computed from them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._step = -1
        self._buffers: dict[int, tuple[str, int]] = {}
        self._computed: dict[int, tuple[str, list[weakref.ref[torch.Tensor]]]] = {}
        self._overwritten: set[str] = set()
        self._noted: set[str] = set()

    def see(self, operation: Any, args: Any, result: Any) -> None:
        """Note the buffers on which the result depends, if it needs a gradient; else follow the result."""
        run = self.run
        if run.mirrors or not run.full or not run.trains or not torch.is_grad_enabled():
            return
        if self._step != run.step:
            self._begin_step()
        if not self._buffers:
            return
        found: set[str] = set()
        needs_gradient = False
        for argument, each in zip(operation._schema.arguments, args, strict=False):
            alias = argument.alias_info
            for tensor in _tensors(each):
                needs_gradient = needs_gradient or tensor.requires_grad
                name = self._name(tensor)
                if alias is not None and alias.is_write:
                    self._written(operation, tensor)
                elif name and name not in self._noted and name not in self._overwritten:
                    found.add(name)
        for name in found:
            if needs_gradient:
                self._noted.add(name)
                run.note("used_buffer", buffer=name, step=run.step, line=run.line())
            else:
                self._follow(name, result)

    def _name(self, tensor: torch.Tensor) -> str:
        """The buffer of which the tensor is a part, or from which it was computed; empty if there is none."""
        place = place_of(tensor)
        name, followed = self._computed.get(place, ("", []))
        if any(reference() is not None for reference in followed):
            return name
        return self._buffers.get(place, ("", 0))[0]

    def _written(self, operation: Any, tensor: torch.Tensor) -> None:
        name, size = self._buffers.get(place_of(tensor), ("", 0))
        if name and tensor.numel() == size and operation.overloadpacket.__name__ in _OVERWRITES:
            self._overwritten.add(name)

    def _follow(self, name: str, result: Any) -> None:
        for tensor in _tensors(result):
            place = place_of(tensor)
            if not place or place in self._buffers:  # a view of the buffer
                continue
            known, followed = self._computed.get(place, ("", []))
            alive = [reference for reference in followed if reference() is not None] if known == name else []
            self._computed[place] = name, [*alive, weakref.ref(tensor)]

    def _begin_step(self) -> None:
        self._step = self.run.step
        self._overwritten.clear()
        self._computed.clear()
        self._buffers = {
            place: (name.removeprefix("module."), each.numel())
            for root in script_objects.of(self.run).modules
            for name, each in root.named_buffers()
            if each.is_floating_point() and (place := place_of(each))
        }


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument or a result, which may be a list of them."""
    for each in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(each, torch.Tensor):
            yield each


@functools.cache
def of(run: Run) -> UsedBuffers:
    """The used buffers of this run."""
    return UsedBuffers(run)
