"""Puts together parameters that fully_shard splits over the ranks, so that all laws can judge them.

All ranks put a parameter together at the same place: at the first forward after a step, at a clip, at a step. A mirror run of one
process holds every parameter whole. What another program split, as tensor parallelism does, or what has other dimensions of a
mesh than data-parallel ones, is not put together. flat_parameters.py does the same for FSDP1.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist

from ..recorded_process import Run
from . import flat_parameters, script_objects
from .tensors import digest, is_sharded

_PACKAGE = "torch.distributed.fsdp"


def gathers(run: Run, tensor: torch.Tensor) -> bool:
    """Whether this tensor is a part of a parameter that fully_shard, or FSDP1, split over all ranks."""
    if not run.mirrors and flat_parameters.is_split(tensor):
        return True
    placements: Any = getattr(tensor, "placements", ())
    if run.mirrors or sum(each.is_shard() for each in placements) != 1:
        return False
    mesh: Any = getattr(tensor, "device_mesh", None)
    plainly = all(each.is_shard() or each.is_replicate() for each in placements)
    return plainly and mesh.size() == dist.get_world_size() and _shards_modules(run)


def whole(run: Run, tensor: torch.Tensor, parameter: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor; put together from all ranks' parts if it is split. parameter: of which the tensor is the gradient."""
    flat = tensor if parameter is None else parameter
    if not run.mirrors and flat_parameters.is_split(flat):
        return flat_parameters.whole(flat, tensor)
    if not gathers(run, tensor):
        return tensor
    split: Any = tensor.detach()
    made: torch.Tensor = split.full_tensor()
    return made


def shared_digest(run: Run, tensor: torch.Tensor, parameter: torch.Tensor | None = None) -> str:
    """The same on all ranks where their values are equal; empty for parts that are not put together any more."""
    if not gathers(run, tensor if parameter is None else parameter):
        return digest(tensor)
    return digest(whole(run, tensor, parameter)) if run.full else ""


def _shards_modules(run: Run) -> bool:
    """Whether fully_shard was applied to a module that was called, or to one inside it."""
    package = sys.modules.get(_PACKAGE)
    called = script_objects.of(run).modules
    return package is not None and any(isinstance(e, package.FSDPModule) for root in called for e in root.modules())


def is_split(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a DTensor of which this rank holds a part."""
    return is_sharded(tensor) and hasattr(tensor, "placements")
