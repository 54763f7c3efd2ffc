"""ResNet-18 (He et al., CVPR 2016) for small one-channel images, about 11 million parameters.

As usual for small images, the stem is one 3 x 3 convolution without pooling. Each image is a row of h x h features.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a shortcut, which is a 1 x 1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Four stages of two blocks. Each stage after the first halves the image's sides and doubles the width."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(Block(inputs, outputs, stride=1 if stage == 0 else 2), Block(outputs, outputs, stride=1))
                for stage, (inputs, outputs) in enumerate(itertools.pairwise(widths))
            )
        )
        self.head = nn.Linear(8 * width, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        side = math.isqrt(pixels.shape[1])
        if side * side != pixels.shape[1]:
            raise ValueError(f"{pixels.shape[1]} features are no square image; give rows of h x h pixels")
        images = pixels.reshape(-1, 1, side, side)
        logits: Tensor = self.head(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits
