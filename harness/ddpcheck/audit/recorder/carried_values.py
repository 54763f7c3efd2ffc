"""Records values that a script carries from step to step and uses in its loss, such as a running mean of each rank's samples.

A value is carried if it was computed in an earlier step, or from such values alone. It is noted if an operation takes it, or what
is computed from it, together with a tensor that needs a gradient. Parameters and buffers have laws of their own. Random draws and
batches are not followed.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

import torch

from ...pytorch.pending_collectives import place_of
from ..recorded_process import Run
from . import script_objects
from .tensors import digest

_MOST = 4096
_NOTED = 32
"""The most values that are noted of one step."""


class Use(NamedTuple):
    """A carried value at the line that applies it to something else."""

    line: str
    shape: tuple[int, ...]
    digest: str


class Followed(NamedTuple):
    """A tensor without gradient: the step in which it was made, and the carried values in it. None is kept alive."""

    step: int
    uses: frozenset[Use]
    tensors: tuple[weakref.ref[torch.Tensor], ...]

    def alive(self) -> tuple[weakref.ref[torch.Tensor], ...]:
        return tuple(each for each in self.tensors if each() is not None)


class CarriedValues:
    """The followed tensors of this and earlier steps, by the place of their storage.

    A step begins with its first operation on a tensor that needs a gradient: what follows an optimizer's step belongs to that.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._step = -1
        self._followed: dict[int, Followed] = {}
        self._state: set[int] = set()
        self._noted: set[Use] = set()

    def see(self, operation: Any, args: Any, result: Any) -> None:
        run = self.run
        if run.in_backward or run.mirrors or run.loading or not run.full or not run.trains:
            return
        tensors = [each for argument in args for each in _tensors(argument)]
        needs = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        if needs and self._step != run.step:
            self._begin(run.step)
        found = [self._of(each) for each in tensors]
        uses = frozenset().union(*(each.uses for each in found if each is not None and each.step == self._step))
        old = [t for t, each in zip(tensors, found, strict=True) if each is not None and each.step < self._step]
        if old and len(old) < len(tensors):
            uses |= {Use(run.line(), tuple(each.shape), digest(each)) for each in old}
        if needs:
            self._note(uses)
        elif not _is_view(operation) and torch.Tag.nondeterministic_seeded not in operation.tags:
            self._follow(found, uses, result)

    def _begin(self, step: int) -> None:
        self._step = step
        self._noted = set()
        roots = script_objects.of(self.run).modules
        self._state = {place_of(each) for root in roots for each in (*root.parameters(), *root.buffers())}
        self._followed = {place: each for place, each in self._followed.items() if each.alive()}

    def _of(self, tensor: torch.Tensor) -> Followed | None:
        followed = None if tensor.requires_grad else self._followed.get(place_of(tensor))
        return followed if followed is not None and followed.alive() else None

    def _note(self, uses: frozenset[Use]) -> None:
        for each in uses - self._noted:
            if len(self._noted) < _NOTED:
                self._noted.add(each)
                self.run.note("carried", step=self.run.step, line=each.line, shape=each.shape, digest=each.digest)

    def _follow(self, found: list[Followed | None], uses: frozenset[Use], result: Any) -> None:
        known = [each.step for each in found if each is not None]
        if self._step != self.run.step and not known:
            return  # after a step, only what is computed from followed values is no part of a batch
        step = max(known) if known and len(known) == len(found) else self._step
        for each in _tensors(result):
            place = place_of(each)
            if place and each.is_floating_point() and each.numel() <= _MOST and place not in self._state:
                before = self._followed.get(place)
                alive = before.alive() if before is not None else ()
                self._followed[place] = Followed(step, uses, (*alive, weakref.ref(each)))


def _tensors(value: Any) -> list[torch.Tensor]:
    several = value if isinstance(value, (list, tuple)) else (value,)
    return [each for each in several if isinstance(each, torch.Tensor)]


@functools.cache
def _is_view(operation: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in operation._schema.returns)


@functools.cache
def of(run: Run) -> CarriedValues:
    """The carried values of this run."""
    return CarriedValues(run)
