"""Records gradients before any reduction: a hook on each parameter sees the gradient that a backward adds.

DDP's own hooks run later, after accumulation, so these hooks see the local gradient. Large parameters are sampled
(tensors.SAMPLED).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from ..recorded_process import Run
from . import (
    batch_values,
    compared_steps,
    flat_parameters,
    loss_factors,
    loss_terms,
    operation_values,
    script_objects,
    torch_random_draws,
)
from .fully_sharded import shared_digest, whole
from .patching import replace
from .tensors import checksum, is_sharded, sample
from .wrapped_parameters import coverage

_PARTS = 32
"""Backwards of one window whose gradients are kept separately; later ones are added to the last."""


class Gradients:
    """The local gradients of every parameter since its gradient was last empty."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.parts: dict[int, list[torch.Tensor]] = {}
        self.clipped: dict[int, torch.Tensor] = {}
        """Sampled gradients before clipping, if they were clipped."""
        self.parameters: list[torch.Tensor] = []
        self._hooked: set[int] = set()
        self._hooks: list[Any] = []
        self._reduced: dict[int, int] = {}
        """Checksums of the gradients after the last backward that DDP synchronised."""
        self.loss_scale: float = 1.0
        """The factor by which a gradient scaler has multiplied the losses of this step."""
        self._clipped_at: dict[int, int] = {}
        self._inside = False
        self.stepping = False
        """Whether an optimizer that has its gradient evaluates its closure again, as LBFGS does."""

    def watch(self, parameters: list[torch.Tensor]) -> None:
        known = {id(parameter) for parameter in self.parameters}
        self.parameters += [parameter for parameter in parameters if id(parameter) not in known]

    def hook(self) -> None:
        """Hook all parameters, including those that only now require a gradient. None after the recorded steps."""
        if not self.run.full:
            return
        for parameter in self.parameters:
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                empty = flat_parameters.is_empty if hasattr(parameter, "_fsdp_flattened") else _empty
                seen = self.seen(parameter, partial(empty, parameter))
                self._hooks.append(parameter.register_hook(seen))  # type: ignore[no-untyped-call]

    def unhook(self) -> None:
        """Local gradients are seen no more."""
        for each in self._hooks:
            each.remove()
        self._hooks = []

    def seen(self, parameter: torch.Tensor, empty: Callable[[], bool]) -> Any:
        """A hook that keeps local gradients of this parameter. empty: whether nothing has been accumulated in it."""

        def seen(gradient: torch.Tensor) -> None:
            if not self._inside or self.stepping or not self.run.full:
                return
            with torch_random_draws.of(self.run).unwatched():
                self._keep(parameter, gradient, clear=empty())

        return seen

    def _keep(self, parameter: torch.Tensor, gradient: torch.Tensor, *, clear: bool) -> None:
        kept = self.parts.setdefault(id(parameter), [])
        if clear:
            kept.clear()
        part = sample(gradient)
        if self.loss_scale != 1.0:
            part = part.float() / self.loss_scale
        if len(kept) < _PARTS:
            kept.append(part)
        else:
            kept[-1] += part

    def forget(self, parameters: Iterable[torch.Tensor]) -> None:
        """Forget gradients after a step, or after a step that a gradient scaler has skipped."""
        self.loss_scale = 1.0
        for each in parameters:
            for kept in (self.parts, self.clipped, self._clipped_at):
                kept.pop(id(each), None)

    def backward(self, original: Any) -> Any:
        run = self.run

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return original(tensors, *args, **kwargs)
            self.hook()
            first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
            loss = loss_factors.described(first, self.loss_scale)
            if loss["loss"] is not None and not math.isfinite(loss["loss"]):
                compared_steps.of(run).compare()
            loss_terms.of(run).close(first)
            operation_values.of(run).close(first)
            self._inside = run.in_backward = True
            try:
                return original(tensors, *args, **kwargs)
            finally:
                self._inside = run.in_backward = False
                line = run.line()
                run.note(
                    "backward", step=run.step, number=run.backwards, line=line, sync=syncing(run), again=self.stepping,
                    callers=run.callers(), **loss,
                )  # fmt: skip
                batch_values.note_loss(run, line, loss["loss"], loss["scale"])
                self._look_at_reduced()
                run.backwards += not self.stepping

        return backward

    def _look_at_reduced(self) -> None:
        run = self.run
        self._reduced = {}
        if run.mirrors or not run.full or not any(syncing(run)):
            return
        with torch_random_draws.of(run).unwatched():
            self._reduced = {
                id(each): checksum(each.grad)
                for each in self.parameters
                if each.grad is not None and not is_sharded(each) and coverage(each) == "synchronised"
            }

    def reduced(self, parameters: Iterable[torch.Tensor]) -> list[int | None]:
        """Checksums of the parameters' gradients as DDP left them; None where it did not synchronise them."""
        return [self._reduced.get(id(each)) for each in parameters]

    def clip(self, original: Any, kind: str) -> Any:
        run = self.run

        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            limit = args[0] if args else kwargs.get("max_norm", kwargs.get("clip_value", 0.0))
            several = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            known = {id(parameter) for parameter in self.parameters}
            digests = None
            if compared_steps.of(run).now():
                digests = [] if run.mirrors else [shared_digest(run, e.grad, e) for e in several if e.grad is not None]
            if run.full:
                for each in several:
                    if each.grad is not None and id(each) in known and self._clipped_at.get(id(each)) != run.backwards:
                        self._clipped_at[id(each)] = run.backwards
                        self.clipped[id(each)] = sample(whole(run, each.grad, each))
            result = original(several, *args, **kwargs)
            norm = float(whole_norm(result)) if isinstance(result, torch.Tensor) else None
            run.note(
                "clip", step=run.step, number=run.backwards, how=kind, limit=float(limit), norm=norm, digests=digests,
                line=run.line(),
            )  # fmt: skip
            return result

        return clip


def whole_norm(norm: Any) -> Any:
    """The whole norm: gradients in parts have a norm in parts, too."""
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def _empty(parameter: torch.Tensor) -> bool:
    return parameter.grad is None or not bool(parameter.grad.any())


def syncing(run: Run) -> list[bool]:
    """For each DDP wrapper, whether the last backward was to synchronise, by its present flag."""
    return [bool(wrapper.require_backward_grad_sync) for wrapper in script_objects.of(run).wrappers]


@functools.cache
def of(run: Run) -> Gradients:
    """The gradients that this run has recorded."""
    return Gradients(run)


def install(run: Run) -> None:
    gradients = of(run)
    replace(torch.autograd, "backward", gradients.backward)
    utils = torch.nn.utils
    for name, kind in (("clip_grad_norm_", "norm"), ("clip_grad_value_", "value")):
        if hasattr(utils, name):
            replace(utils, name, partial(gradients.clip, kind=kind))
            setattr(utils.clip_grad, name, getattr(utils, name))
