"""Records gradient scalers: the loss scale, the gradients that they check, and the skipped steps.

A mirror run skips the same steps as the real run, so that both step after the same batches: the whole batch's gradient
may be finite where a rank's is not.
"""

from __future__ import annotations

from typing import Any

import torch

from ..recorded_process import Run
from . import compared_steps, fully_sharded, gradients
from .patching import replace
from .script_objects import parameters_of


def install(run: Run) -> None:
    steps = [0]

    def make_scale(original: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            gradients.of(run).loss_scale = float(scaler.get_scale()) if scaler.is_enabled() else 1.0
            return original(scaler, outputs)

        return scale

    def make_unscale(original: Any) -> Any:
        def unscale_(scaler: Any, optimizer: Any) -> Any:
            every = parameters_of(optimizer)
            grads = None
            if compared_steps.of(run).now():
                grads = [
                    fully_sharded.shared_digest(run, each.grad, each) if each.grad is not None else "" for each in every
                ]
            run.note("unscale", step=run.step, grads=grads, line=run.line())
            if run.mirrors and _skipped_in_real_run(run, steps[0]):
                with torch.no_grad():
                    for each in every:
                        if each.grad is not None:
                            each.grad.fill_(float("inf"))
            return original(scaler, optimizer)

        return unscale_

    def make_step(original: Any) -> Any:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before, scale = run.step, scaler.get_scale()
            result = original(scaler, optimizer, *args, **kwargs)
            steps[0] += 1
            if run.step == before:
                run.backwards = 0
                gradients.of(run).forget(parameters_of(optimizer))
            run.note("scaled_step", step=before, stepped=run.step > before, scale=scale, line=run.line())
            return result

        return step

    replace(torch.amp.GradScaler, "scale", make_scale)
    replace(torch.amp.GradScaler, "unscale_", make_unscale)
    replace(torch.amp.GradScaler, "step", make_step)


def _skipped_in_real_run(run: Run, number: int) -> bool:
    from ..mirror.recorded_ranks import recorded_ranks

    first = min(recorded_ranks(run), key=lambda recorded: recorded.rank)
    every = [event for event in first.events if event["kind"] == "scaled_step"]
    return number < len(every) and not every[number]["stepped"]
