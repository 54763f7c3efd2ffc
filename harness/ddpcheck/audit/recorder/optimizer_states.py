"""Records the state of each optimizer before its first step, such as momentum, and the lines that load one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from ..recorded_process import Run
from . import script_objects
from .patching import replace
from .script_objects import parameters_of
from .tensors import digest_of_nest, plain, walk


class OptimizerStates:
    """The optimizers whose state has been recorded."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._objects = script_objects.of(run)
        self._seen: set[int] = set()

    def see(self, optimizer: Optimizer) -> None:
        """Note a digest of each parameter's state, if this is the optimizer's first step."""
        run, place = self.run, self._objects.place(optimizer)
        if run.mirrors or place in self._seen:
            return
        self._seen.add(place)
        every = [optimizer.state.get(each) for each in parameters_of(optimizer)]
        states = [each if isinstance(each, Mapping) else {} for each in every]
        digests = [_digest(each) for each in states]
        run.note(
            "optimizer_state",
            optimizer=place,
            step=run.step,
            digests=digests if any(digests) else [],
            counted=max((_steps(each) for each in states), default=0),
            line=run.line(),
        )

    def loaded(self, optimizer: Any) -> None:
        run = self.run
        known = any(each is optimizer for each in self._objects.optimizers)
        if known and not run.mirrors:
            run.note("optimizer_loaded", optimizer=self._objects.place(optimizer), step=run.step, line=run.line())


def _digest(state: Mapping[Any, Any]) -> str:
    """Equal for states with the same values: a count may be a number, or a tensor, and None is as good as nothing."""
    values: list[Any] = []

    def add_tensor(tensor: torch.Tensor) -> None:
        own = plain(tensor)
        if type(own) is torch.Tensor:  # subclasses, such as quantised ones, have no bits of their own
            values.append(float(own) if own.numel() == 1 and not own.is_complex() else own)

    def add_other(other: Any) -> None:
        if isinstance(other, (bool, int, float, str)):
            values.append(other if isinstance(other, str) else float(other))

    for name in sorted(state, key=str):
        before = len(values)
        walk(state[name], add_tensor, add_other)
        if len(values) > before:
            values.append(str(name))
    return digest_of_nest(values) if values else ""


def _steps(state: Mapping[Any, Any]) -> int:
    """The steps that the state has counted; 0 if it counts none."""
    count = state.get("step", 0)
    if isinstance(count, torch.Tensor):
        count = float(plain(count)) if count.numel() == 1 else 0
    return int(count) if isinstance(count, (int, float)) else 0


@functools.cache
def of(run: Run) -> OptimizerStates:
    """The states of this run's optimizers."""
    return OptimizerStates(run)


def install(run: Run) -> None:
    def make_load(original: Any) -> Any:
        def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            of(run).loaded(self)
            return result

        return load_state_dict

    replace(Optimizer, "load_state_dict", make_load)
