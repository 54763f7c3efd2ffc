"""The model of the steps: a deep multi-layer perceptron with 16 linear layers."""

from __future__ import annotations

import itertools

from torch import nn


def deep_mlp(width: int = 64) -> nn.Module:
    """Linear layers with ReLU between, from images of 8 x 8 to 10 classes."""
    sizes = [64, *[width] * 15, 10]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
