"""A number for each of some tensors, as long as the tensor lives."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class TensorNumbers:
    """Numbers by tensor. No tensor is kept alive, and an id() that comes again is another tensor."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def add(self, tensor: torch.Tensor, number: int) -> None:
        self._numbers[id(tensor)] = weakref.ref(tensor), number

    def of(self, value: Any) -> int | None:
        """None for anything that has no number."""
        reference, number = self._numbers.get(id(value), (None, 0))
        return number if reference is not None and reference() is value else None

    def clear(self) -> None:
        self._numbers.clear()
