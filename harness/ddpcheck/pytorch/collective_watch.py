"""Watches the collectives that this process's code starts, and all operations of PyTorch that may change their tensors."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.utils._python_dispatch import TorchDispatchMode

from .pending_collectives import AWAITING, How, Pending, PendingCollectives

_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "send": "send",
    "recv": "recv",
}
"""The methods of a process group, under which all functions of torch.distributed end, and the collective of each."""
_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1]))
"""Without the separator, packages whose names begin alike, such as torchvision, would belong to them."""


class CollectiveWatch:
    """Collectives are watched from its making until end()."""

    def __init__(self) -> None:
        self._found: list[tuple[How, str, str, str]] = []
        self._replaced: list[tuple[Any, str, Any]] = []
        self._pending = PendingCollectives(_line, self._note)
        for name, collective in _COLLECTIVES.items():
            self._replace(dist.ProcessGroup, name, functools.partial(self._starting, collective))
        for name in AWAITING:
            self._replace(c10d.Work, name, self._asking)
        self._mode = _Operations(self._pending)
        self._mode.__enter__()

    def end(self) -> list[tuple[How, str, str, str]]:
        """What was found: how, the collective, the line that starts it, and the line that shows it."""
        self._mode.__exit__(None, None, None)
        for owner, name, original in self._replaced:
            setattr(owner, name, original)
        self._pending.report()
        return self._found

    def _note(self, one: Pending, how: How, line: str) -> None:
        self._found.append((how, one.operation, one.line, line))

    def _replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        if name in vars(owner):
            # not what getattr() returns: a compiled method would no more get its object
            self._replaced.append((owner, name, vars(owner)[name]))
            setattr(owner, name, make(getattr(owner, name)))

    def _starting(self, collective: str, original: Any) -> Any:
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            handle = original(group, *args, **kwargs)
            self._pending.started(collective, (*args, *kwargs.values()), handle)
            return handle

        return call

    def _asking(self, original: Any) -> Any:
        def call(handle: Any, *args: Any, **kwargs: Any) -> Any:
            self._pending.asked(handle)
            return original(handle, *args, **kwargs)

        return call


_Mode: Any = TorchDispatchMode  # the class is untyped


class _Operations(_Mode):  # type: ignore[misc]
    def __init__(self, pending: PendingCollectives) -> None:
        super().__init__()
        self._pending = pending

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._pending.see(func, args, kwargs or {})
        return result


def _line() -> str:
    """The innermost line outside PyTorch and the harness: file and number."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
