"""Optional methods of a wrapper, and the promises that depend on them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..contract import Capabilities, ReplicaMethod
from ..execution.process_settings import ProcessSettings

_RAISED = "ddpcheck: wrap() raised"
_PATIENCE = 5.0  # seconds


def promises_without_method(
    wrap: Callable[[nn.Module], Any], device: torch.device, promises: Capabilities, *, no_sync: object
) -> dict[str, str]:
    """The promises that need a method which the wrapper of a small module lacks, each with the reason. All ranks call
    it.

    no_sync: the user's own function, which needs no method. If wrap() raises on some ranks only, they raise its error:
    the others may wait for them inside wrap() until the process group's time is over.
    """
    needed = {
        "no_sync": "no_sync" if promises.has(ReplicaMethod.NO_SYNC) and no_sync is None else "",
        "join": "join" if promises.replica.join is not None else "",
        "checkpoint": "state_dict" if promises.has(ReplicaMethod.CHECKPOINT) else "",
    }
    with torch.random.fork_rng(devices=[]):
        module = nn.Linear(2, 2).to(device)
    ProcessSettings.at_first()  # a setting that the wrapper changes here must show as a change in Jobs
    try:
        wrapped = wrap(module)
    except Exception:
        if not _all_ranks_get_here():
            raise
        return {}  # each check that makes a replica reports it, with its Job
    if wrapped is None:  # reported there, too
        return {}
    kind = type(wrapped).__name__
    found = {
        name: f"{kind} has no {method}()"
        for name, method in needed.items()
        if method and not callable(getattr(wrapped, method, None))
    }
    del wrapped, module
    gc.collect(1)  # hooks of a wrapper refer to it: it would stay until a collection
    return found


def _all_ranks_get_here() -> bool:
    """Whether all ranks call this within some seconds; true without a process group, where they cannot be asked."""
    if not dist.is_initialized():
        return True
    store = dist.distributed_c10d._get_default_store()
    count = store.add(_RAISED, 1)
    limit = time.monotonic() + _PATIENCE
    while count < dist.get_world_size() and time.monotonic() < limit:
        time.sleep(0.02)
        count = store.add(_RAISED, 0)
    return bool(count == dist.get_world_size())
