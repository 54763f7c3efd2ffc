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
from . import flat_parameters, gradients
from .patching import replace
from .tensors import digest, is_sharded, plain

_PACKAGE = "torch.distributed.fsdp"
_installed: set[int] = set()


def gathers(run: Run, tensor: torch.Tensor) -> bool:
    """Whether this tensor is a part of a parameter that fully_shard, or FSDP1, split over all ranks."""
    from . import models

    if not run.mirrors and flat_parameters.is_split(tensor):
        return True
    placements: Any = getattr(tensor, "placements", ())
    if run.mirrors or sum(each.is_shard() for each in placements) != 1:
        return False
    mesh: Any = getattr(tensor, "device_mesh", None)
    plainly = all(each.is_shard() or each.is_replicate() for each in placements)
    return plainly and mesh.size() == dist.get_world_size() and models.of(run).fully_sharded()


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


def is_fully_sharded(module: torch.nn.Module) -> bool:
    """Whether fully_shard was applied to the module."""
    package = sys.modules.get(_PACKAGE)
    return package is not None and isinstance(module, package.FSDPModule)


def watch(run: Run) -> None:
    """Watch local gradients of these parameters. They arrive at the whole parameter, which exists for one forward and
    backward.
    """
    if id(run) in _installed:
        return
    _installed.add(id(run))
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    def make(original: Any) -> Any:
        def init_unsharded_param(self: Any) -> None:
            new = not hasattr(self, "_unsharded_param")
            original(self)
            if new and self._unsharded_param.requires_grad:
                seen = gradients.of(run).seen(self.sharded_param, lambda: _empty(self))
                self._unsharded_param.register_hook(seen)

        return init_unsharded_param

    replace(FSDPParam, "init_unsharded_param", make)


def _empty(split: Any) -> bool:
    """Whether no gradient has been accumulated for a parameter of fully_shard."""
    if split.unsharded_accumulated_grad is not None or split._unsharded_param.grad is not None:
        return False
    gradient = split.sharded_param.grad
    if gradient is None:
        return True
    own = plain(gradient)
    return own.numel() > 0 and not bool(own.any())


def is_split(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a DTensor of which this rank holds a part."""
    return is_sharded(tensor) and hasattr(tensor, "placements")
