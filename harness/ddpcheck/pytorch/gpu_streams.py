"""Delays GPU streams so that an engine that does not wait for a stream fails. The CPU has no streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import torch

from ..seeded_values import Array

Value = TypeVar("Value", Array, Array | None)

_BUSY_CYCLES = 4_000_000
"""Some 2 ms: longer than the host takes to start a small model's backward and its communication."""


def keep_busy(device: torch.device) -> None:
    """Let the host run ahead of the device: code that does not wait for the usual stream then reads unfinished
    values.
    """
    if device.type == "cuda":
        torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]


def settled(device: torch.device, what: str, read: Callable[[], Mapping[str, Value]]) -> Mapping[str, Value]:
    """The value read; RuntimeError if it has changed when the device is idle."""
    found = read()
    if device.type != "cuda":
        return found
    torch.cuda.synchronize(device)
    for name, now in read().items():
        before = found[name]
        if now is not None and before is not None and not np.array_equal(before, now, equal_nan=True):
            raise RuntimeError(
                f"{what} {name} changes after the call has returned: the engine does not wait for work on another stream"
            )
    return found
