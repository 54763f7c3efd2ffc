"""Records asynchronous collectives of the script whose end nobody awaits, and tensors that change before it is awaited."""

from __future__ import annotations

import functools
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d

from ..recorded_process import Run
from .patching import OWN, is_library, replace

_AWAITING = ("wait", "synchronize", "block_current_stream", "get_future", "get_future_result", "is_completed", "result")
"""The methods of a handle by which a script may learn that the collective has ended."""


@dataclass(eq=False)
class _Started:
    """A collective that may still run. version: the tensor's, which PyTorch counts up when it is changed in place."""

    operation: str
    line: str
    step: int
    number: int
    tensor: weakref.ref[torch.Tensor] | None
    version: int
    awaited: bool = False


class Handles:
    """The handles of this process's asynchronous collectives.

    A handle that is gone, and was never asked, is noted by the next collective or step: it may go inside any line. Each line is
    noted once.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._running = weakref.WeakKeyDictionary[Any, _Started]()
        self._lost: list[_Started] = []
        self._noted = set[tuple[str, str]]()

    def started(self, operation: str, args: tuple[Any, ...], handle: Any) -> bool:
        """Watch the handle that the script's own call of a collective has returned. Whether there is one."""
        self.report()
        if type(handle) is not c10d.Work or not _called_by_script():
            return False
        run = self.run
        tensor = next((each for each in args if isinstance(each, torch.Tensor)), None)
        seen, version = None, 0
        if tensor is not None and not tensor.is_inference():  # others have no version
            seen, version = weakref.ref(tensor), tensor._version
        one = _Started(operation, run.line(), run.step, run.backwards, seen, version)
        self._running[handle] = one
        weakref.finalize(handle, self._gone, one).atexit = False
        return True

    def asked(self, handle: Any) -> None:
        """The script calls a method of a handle."""
        one = self._running.get(handle)
        if one is None or one.awaited:
            return
        one.awaited = True
        tensor = one.tensor() if one.tensor is not None else None
        if tensor is not None and tensor._version != one.version:
            self._note(one, "changed")

    def report(self) -> None:
        """Note the handles that are gone and were never asked."""
        while self._lost:
            self._note(self._lost.pop(0), "unawaited")

    def _gone(self, one: _Started) -> None:
        if not one.awaited:
            self._lost.append(one)

    def _note(self, one: _Started, how: str) -> None:
        run = self.run
        if (one.line, how) not in self._noted:
            self._noted.add((one.line, how))
            place = {"step": one.step, "number": one.number, "start": one.line, "line": run.line()}
            run.note("in_flight", how=how, op=one.operation, **place)


def _called_by_script() -> bool:
    """Whether a file of the script calls the collective itself, not through a library."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and not is_library(frame.f_code.co_filename)


@functools.cache
def of(run: Run) -> Handles:
    return Handles(run)


def install(run: Run) -> None:
    if run.mirrors:
        return
    handles = of(run)

    def noting(original: Any) -> Any:
        def call(handle: Any, *args: Any, **kwargs: Any) -> Any:
            handles.asked(handle)
            return original(handle, *args, **kwargs)

        return call

    for name in _AWAITING:
        if hasattr(c10d.Work, name):
            replace(c10d.Work, name, noting)
