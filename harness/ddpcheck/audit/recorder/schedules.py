"""Records the steps of learning-rate schedulers, in the optimizer steps that are recorded in full and after the last one."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from ..recorded_process import Run
from .patching import replace


def install(run: Run) -> None:
    def make_step(original: Any) -> Any:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if run.step <= run.settings.steps:
                run.note("schedule", step=run.step, line=run.line())
            return original(scheduler, *args, **kwargs)

        return step

    replace(LRScheduler, "step", make_step)
