"""Finds models that no forward pass has used and no optimizer trains, such as an average that is only saved."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable

import torch
from torch import nn


def uncalled_parameters(roots: Iterable[nn.Module], optimized: Iterable[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parameters of such models, by "u", the model's class, its number among those of its class, and the parameter's name.

    A model is an outermost module of this process. One that shares a parameter with a known one is left out.
    """
    # the class alone, since isinstance() may call code of the object's own
    alive = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    inside = {id(child) for each in alive for child in each.children()}
    known = {id(each) for each in optimized} | {id(each) for root in roots for each in root.parameters()}
    found: dict[str, torch.Tensor] = {}
    numbers: Counter[str] = Counter()
    for module in alive:
        own = {} if id(module) in inside else dict(module.named_parameters())
        if not own or not known.isdisjoint(map(id, own.values())):
            continue
        kind = type(module).__name__
        found |= {f"u{kind} {numbers[kind]}.{name.removeprefix('module.')}": each for name, each in own.items()}
        numbers[kind] += 1
    return found
