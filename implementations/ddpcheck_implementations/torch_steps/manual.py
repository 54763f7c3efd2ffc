"""Step 2: data parallelism by hand, in one process. Two copies of the model each take half of the batch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class TwoCopies(nn.Module):
    """Has the interface of one model. The optimizer updates the first copy; forward copies it to the second."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.first = module
        self.second = copy.deepcopy(module)

    def forward(self, inputs: Tensor, *rest: object) -> Tensor:
        self.second.load_state_dict(self.first.state_dict())
        half = (len(inputs) + 1) // 2
        return torch.cat([self.first(inputs[:half], *rest), self.second(inputs[half:], *rest)])

    def average_gradients(self) -> None:
        """After backward: g = (n1 g1 + n2 g2) / (n1 + n2), where gi is the mean gradient of the ni samples of copy i.

        The loss is a mean over the whole batch, so the gradient of copy i is ni gi / (n1 + n2): add both. An average of g1
        and g2 with equal weights would be wrong for an odd batch.
        """
        for mine, other in zip(self.first.parameters(), self.second.parameters(), strict=True):
            if other.grad is not None:
                mine.grad = other.grad if mine.grad is None else mine.grad + other.grad
                other.grad = None
