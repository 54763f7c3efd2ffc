"""Records buffers whose values the forward pass of training uses, such as a queue of keys, and not only updates.

A buffer that is overwritten as a whole before its use, as a mask that is drawn anew, keeps nothing from one step to the next.
"""

from __future__ import annotations

from typing import Any

import torch

from ..recorded_process import Run
from . import script_objects

_OVERWRITES = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"})


class UsedBuffers:
    """The buffers of this run's modules by the place of their storage, renewed in each step."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._step = -1
        self._by_storage: dict[int, tuple[str, int]] = {}
        self._overwritten: set[str] = set()
        self._noted: set[str] = set()

    def see(self, operation: Any, args: Any) -> None:
        """Note the buffers among the operands."""
        run = self.run
        if run.mirrors or not run.full or not run.trains or not torch.is_grad_enabled():
            return
        if self._step != run.step:
            self._begin_step()
        if not self._by_storage:
            return
        for argument, each in zip(operation._schema.arguments, args, strict=False):
            alias = argument.alias_info
            if alias is not None and not alias.is_write:
                continue  # a view, which is not used yet
            several = each if isinstance(each, (list, tuple)) else (each,)
            for tensor in several:
                found = self._of(tensor)
                if found is None or found[0] in self._noted:
                    continue
                name, size = found
                if alias is not None:
                    if tensor.numel() == size and operation.overloadpacket.__name__ in _OVERWRITES:
                        self._overwritten.add(name)
                elif name not in self._overwritten:
                    self._noted.add(name)
                    run.note("used_buffer", buffer=name, step=run.step, line=run.line())

    def _of(self, value: Any) -> tuple[str, int] | None:
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return None
        return self._by_storage.get(value.untyped_storage().data_ptr())

    def _begin_step(self) -> None:
        self._step = self.run.step
        self._overwritten.clear()
        self._by_storage = {
            each.untyped_storage().data_ptr(): (name.removeprefix("module."), each.numel())
            for root in script_objects.of(self.run).modules
            for name, each in root.named_buffers()
            if each.is_floating_point() and each.layout == torch.strided and each.numel()
        }


_of_runs: dict[int, UsedBuffers] = {}


def of(run: Run) -> UsedBuffers:
    """The used buffers of this run."""
    return _of_runs.setdefault(id(run), UsedBuffers(run))
