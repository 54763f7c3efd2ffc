"""Records asynchronous collectives of the script whose end nobody awaits, and tensors that change before it is awaited."""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch.distributed import distributed_c10d as c10d

from ...pytorch.pending_collectives import AWAITING, How, Pending, PendingCollectives
from ..recorded_process import Run
from .patching import OWN, is_library, replace


def started(run: Run, operation: str, args: tuple[Any, ...], handle: Any) -> bool:
    """Watch the handle that the script's own call of a collective has returned. Whether there is one."""
    if not _called_by_script():
        return False
    return of(run).started(operation, args, handle, step=run.step, number=run.backwards)


def _called_by_script() -> bool:
    """Whether a file of the script calls the collective itself, not through a library."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and not is_library(frame.f_code.co_filename)


@functools.cache
def of(run: Run) -> PendingCollectives:
    """The handles of this run's asynchronous collectives."""

    def found(one: Pending, how: How, line: str) -> None:
        run.note("in_flight", how=how, op=one.operation, start=one.line, line=line, **one.about)

    return PendingCollectives(run.line, found)


def install(run: Run) -> None:
    if run.mirrors:
        return
    pending = of(run)

    def noting(original: Any) -> Any:
        def call(handle: Any, *args: Any, **kwargs: Any) -> Any:
            pending.asked(handle)
            return original(handle, *args, **kwargs)

        return call

    for name in AWAITING:
        if hasattr(c10d.Work, name):
            replace(c10d.Work, name, noting)
