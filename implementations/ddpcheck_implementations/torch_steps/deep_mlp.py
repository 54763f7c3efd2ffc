"""The model of the step-by-step variants: a deep multi-layer perceptron, 16 linear layers."""

from __future__ import annotations

import itertools

from torch import nn


def deep_mlp(pixels: int = 64, width: int = 64, classes: int = 10, depth: int = 16) -> nn.Module:
    """Linear layers with ReLU between, for 8 x 8 images unless told otherwise."""
    sizes = [pixels, *[width] * (depth - 1), classes]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
