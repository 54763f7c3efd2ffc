"""Initial values for training: uniform, with a variance that keeps activations and gradients at one size."""

from __future__ import annotations

import math

import numpy as np

from ..models.spec import Linear, ModelSpec
from ..seeded_values import Array, key_of, numbers


def initial_values(model: ModelSpec, seed: int, rank: int) -> dict[str, Array]:
    """He's initialisation (uniform with limit sqrt(6 / inputs)), biases zero.

    Every rank draws other values, so that an implementation that does not start from rank 0's values shows.
    """
    made: dict[str, Array] = {}
    for position, layer in enumerate(model.layers):
        if isinstance(layer, Linear):
            limit = math.sqrt(6 / layer.inputs)
            drawn = numbers((layer.outputs, layer.inputs), "float64", "real", key_of(seed, rank, position), 1)
            made[f"{layer.name}.weight"] = (limit * drawn).astype(model.dtype)
            made[f"{layer.name}.bias"] = np.zeros(layer.outputs, model.dtype)
    return made
