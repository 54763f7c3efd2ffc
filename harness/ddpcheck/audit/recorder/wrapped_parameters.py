"""The parameters that DistributedDataParallel has wrapped, and how it treats each."""

from __future__ import annotations

import weakref

import torch
from torch.nn.parallel import DistributedDataParallel

_covered: dict[int, tuple[torch.Tensor, str]] = {}
_wrappers: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def coverage(parameter: torch.Tensor) -> str:
    """How a wrapper treats a parameter: synchronised, frozen when it was wrapped, ignored, or added to its module since; none
    if no wrapper has it.
    """
    found = _covered.get(id(parameter))
    if found is not None and found[0] is parameter:
        return found[1]
    return (
        "added" if any(each is parameter for wrapper in _wrappers for each in wrapper.module.parameters()) else "none"
    )


def cover(wrapper: DistributedDataParallel) -> None:
    """Note a new wrapper and its parameters."""
    _wrappers.add(wrapper)
    ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
    for name, each in wrapper.module.named_parameters():
        kind = "ignored" if name in ignored else "synchronised" if each.requires_grad else "frozen"
        _covered[id(each)] = (each, kind)
