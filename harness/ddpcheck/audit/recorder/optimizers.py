"""Records optimizer steps: local and synchronised gradients, hyperparameters, and digests of parameters before and
after.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ..recorded_process import Run
from . import (
    asynchronous,
    compared_steps,
    fully_sharded,
    gradients,
    models,
    optimizer_states,
    scalers,
    schedules,
    script_objects,
    sharded_gradients,
    torch_random_draws,
)
from .gradient_patterns import pattern
from .patching import replace
from .script_objects import ScriptObjects, parameters_of
from .tensors import digest, is_sharded, plain, sample
from .wrapped_parameters import coverage

_NOT_A_HYPERPARAMETER = frozenset({"params", "foreach", "fused", "capturable", "differentiable", "maximize"})


class Optimizers:
    """Watches all optimizers of the process."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.objects: ScriptObjects = script_objects.of(run)
        self._inside = 0

    def add_group(self, original: Any) -> Any:
        def add_param_group(optimizer: Optimizer, group: Any) -> Any:
            result = original(optimizer, group)
            if not any(each is optimizer for each in self.objects.optimizers):
                self.objects.optimizers.append(optimizer)
            place, count = self.objects.place(optimizer), len(parameters_of(optimizer))
            gradients.of(self.run).watch(parameters_of(optimizer))
            run = self.run
            run.note(
                "group", optimizer=place, name=type(optimizer).__name__, count=count, step=run.step, line=run.line()
            )
            if any(is_sharded(each) for each in parameters_of(optimizer)):
                run.note("sharded", optimizer=place, line=run.line())
            if any(fully_sharded.is_split(each) for each in parameters_of(optimizer)):
                sharded_gradients.watch_parts(run)
            if any(hasattr(each, "_fsdp_flattened") for each in parameters_of(optimizer)):
                sharded_gradients.watch_clipping(run)
            models.of(run).stale = True
            return result

        return add_param_group

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """Record the gradients now, or after a closure has computed them."""
        self._inside += 1
        if self._inside == 1:
            self._noted: dict[str, Any] = {}
        if self._inside > 1:  # ZeRO steps an optimizer of its own inside
            return None
        asynchronous.of(self.run).report()
        draws = torch_random_draws.of(self.run)
        with draws.unwatched():
            optimizer_states.of(self.run).see(optimizer)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            draws.step_begins(optimizer)
            with draws.unwatched():
                self._look(optimizer)
            return None

        def evaluated() -> Any:
            loss = closure()
            if not gradients.of(self.run).stepping:
                with draws.unwatched():
                    self._look(optimizer)
                gradients.of(self.run).stepping = True
            return loss

        if len(args) > 1:
            return (args[0], evaluated, *args[2:]), kwargs
        return args, {**kwargs, "closure": evaluated}

    def _look(self, optimizer: Optimizer) -> None:
        run, seen = self.run, gradients.of(self.run)
        place = self.objects.place(optimizer)
        every = parameters_of(optimizer)
        needs = [bool(each.requires_grad) for each in every]
        line = run.line()
        looked = compared_steps.of(run).step(
            place, line, run.backwards, tuple(needs), tuple(each.grad is None for each in every)
        )
        self._noted = {
            "optimizer": place,
            "name": type(optimizer).__name__,
            "groups": [_hyperparameters(group) for group in optimizer.param_groups],
            "schedules": [] if run.mirrors else schedules.of(run).places(),
            "looked": looked,
            "grads": [],
            "clipped": any(id(each) in seen.clipped for each in every),
            "backwards": run.backwards,
            "precision": run.precision,
            "line": line,
            "callers": run.callers(),
        }
        if not looked:
            return
        models.of(run).name_parameters()
        shared_digest, whole = partial(fully_sharded.shared_digest, run), partial(fully_sharded.whole, run)
        grads = (
            [] if run.mirrors else [shared_digest(each.grad, each) if each.grad is not None else "" for each in every]
        )
        self._noted |= {
            "needs": needs,
            "grads": grads,
            "zero": bool(every) and all(each.grad is None or not bool(plain(each.grad).any()) for each in every),
            "finite": run.mirrors or all(each.grad is None or bool(plainly_finite(each.grad)) for each in every),
            "sparse": [n for n, each in enumerate(every) if each.grad is not None and each.grad.is_sparse],
            "covered": [coverage(each) for each in every],
            "parts": [len(seen.parts.get(id(each), ())) for each in every] if run.full else [],
            **self._regularities(every),
        }
        if run.full:
            kept = {
                f"{place}.{number}": {
                    "parts": list(seen.parts.get(id(each), [])),
                    "synced": seen.clipped[id(each)] if id(each) in seen.clipped else sample(whole(each.grad, each)),
                }
                for number, each in enumerate(every)
                if each.grad is not None
            }
            run.journal.keep(f"gradients-{run.step}", kept)

    def _regularities(self, every: list[torch.Tensor]) -> dict[str, Any]:
        """local: digests of the rank's own gradients. patterns: which gradients are regular. called, reached: see
        models.
        """
        run, seen = self.run, gradients.of(self.run)
        if run.mirrors or not run.full:
            return {}
        parts = [seen.parts.get(id(each), []) for each in every]
        whole = partial(fully_sharded.whole, run)
        layers = models.of(run).layer_weights()
        return {
            **models.of(run).close_step(),
            "reduced": seen.reduced(every),
            "local": [
                digest(each[0] if len(each) == 1 else torch.stack(each).sum(0)) if each else "" for each in parts
            ],
            "patterns": [
                "" if each.grad is None else pattern(whole(each.grad, each), whole(each), layer=id(each) in layers)
                for each in every
            ],
        }

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._inside -= 1
        if self._inside:
            return
        run, seen = self.run, gradients.of(self.run)
        draws = torch_random_draws.of(run)
        draws.step_ends()
        every = parameters_of(optimizer)
        seen.stepping = False
        with draws.unwatched():
            if not self._noted:  # it never asked for its closure
                self._look(optimizer)
            looked = bool(self._noted["looked"]) and not run.mirrors and not any(is_sharded(each) for each in every)
            after = models.of(run).stepped(every) if run.settings.resumes or looked else []
        run.note("step", step=run.step, **self._noted, after=after)
        seen.forget(every)
        if run.step + 1 >= run.settings.steps:
            seen.unhook()
        models.of(run).stale = True
        draws.close_step()
        run.stepped()


def plainly_finite(tensor: torch.Tensor) -> bool:
    """Whether all values are finite. A finite sum proves it; otherwise the sum may have overflowed, so each value is
    tested.
    """
    values = plain(tensor)
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in group.items():
        if name in _NOT_A_HYPERPARAMETER:
            continue
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = float(value)
        if isinstance(value, (int, float, bool, str)) or value is None:
            found[name] = value
        elif isinstance(value, (tuple, list)) and all(isinstance(each, (int, float)) for each in value):
            found[name] = list(value)
    return found


def install(run: Run) -> None:
    optimizers = Optimizers(run)
    replace(Optimizer, "add_param_group", optimizers.add_group)
    register_optimizer_step_pre_hook(optimizers.before)
    register_optimizer_step_post_hook(optimizers.after)
    optimizer_states.install(run)
    scalers.install(run)
    schedules.install(run)
