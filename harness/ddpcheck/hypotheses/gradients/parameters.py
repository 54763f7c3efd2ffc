"""Hypotheses about a gradient: mixed up with other parameters, layers or pieces of the flat buffer."""

from __future__ import annotations

import numpy as np

from ...causes import gradients as causes
from ...seeded_values import Array
from ..arrays.evidence import WhatIf
from .contributions import Contributions

_SEARCHED = 200
"""Elements of the largest flat buffer that is searched."""


def of_sharing_layers(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradient if one of the layers that share the parameter was left out, or all but one."""
    shares = made.shares() if made.shares else {}
    for name, array in shares.items():
        part = array[rank] if made.inside else array.mean(axis=0)
        own = made.own[rank] if made.inside else made.own.mean(axis=0)
        layers = tuple(shares)
        yield causes.SHARED_PART_REPLACES(layer=name, layers=layers), part
        yield causes.SHARED_PART_MISSING(layer=name, layers=layers), own - part
        if not made.inside and len(array) > 1:
            yield causes.SHARED_PART_NOT_REDUCED(layer=name, layers=layers), own - part + array[rank]


def of_wrong_layer(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """A layer computed something else."""
    for why, array in made.passed() if made.passed else ():
        yield why, array[rank] if made.inside else array.mean(axis=0)


def of_other_parameter(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradient if a rank's part is another parameter's gradient."""
    for name, other in made.others.items():
        if not other.any() or other is made.own or other.size != made.own.size or made.inside:
            continue
        other = other.reshape(made.own.shape)
        yield causes.OTHER_PARAMETERS_GRADIENT(parameter=name), other.mean(axis=0)
        for rank in range(len(other)):
            mixed = made.own.copy()
            mixed[rank] = other[rank]
            if not mixed.any():  # zeros have many causes
                continue
            yield causes.RANK_SENDS_OTHER_PARAMETER(rank=rank, parameter=name), mixed.mean(axis=0)
        if made.backwards > 1:
            yield causes.OTHER_PARAMETER_ADDED(parameter=name), (made.own + other).mean(axis=0)


def with_its_parameter(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradient if its buffer still held the parameter when it was added."""
    if made.value is not None and made.value.any():
        yield causes.PARAMETER_ADDED(), expected + made.value[rank]


def of_other_piece(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradient if a rank's part is another piece of the flat buffer of all gradients."""
    size = made.own[0].size
    there = {name: other.reshape(len(other), -1) for name, other in made.others.items()}
    if made.inside or size < 2 or not there or sum(other.shape[1] for other in there.values()) > _SEARCHED:
        return
    for rank in range(len(made.own)) if len(made.own) > 1 else ():
        backwards = list(there)[::-1]
        layers = dict.fromkeys(name.rpartition(".")[0] for name in backwards)
        for first in ("", *layers):  # a layer that a rank did not use in one pass may come first
            order = sorted(backwards, key=lambda name: name.rpartition(".")[0] != first)
            flat = np.concatenate([there[name][rank] for name in order])
            for start in range(flat.size - size + 1):
                mixed = made.own.copy()
                mixed[rank] = flat[start : start + size].reshape(made.own.shape[1:])
                yield causes.RANK_SENDS_OTHER_PIECE(rank=rank), mixed.mean(axis=0)
    for order in (list(there), list(there)[::-1], sorted(there)):
        flat = np.concatenate([there[name].mean(axis=0) for name in order])
        for start in range(flat.size - size + 1):
            piece = flat[start : start + size].reshape(made.own.shape[1:])
            yield causes.UNPACKED_IN_OTHER_ORDER(), piece
