"""Operations about random numbers, and how a rank does them: an implementation's own streams, and mishaps of the
generators that a whole process shares.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..plain import plain

if TYPE_CHECKING:
    from ..adapter import Streams
    from ..values import Array


class NoNumbers(Exception):
    """What came back is not what Streams must give."""


@plain
@dataclass(frozen=True, slots=True)
class Draw:
    """Make one Streams and draw from it in each epoch: `extra[rank]` local numbers first, then `count` of both kinds.

    Yields local and common: one float64 array of shape (count,) for each epoch.
    """

    kind: ClassVar[str] = "draw"
    seed: int = 0
    epochs: tuple[int, ...] = (0,)
    count: int = 8
    extra: tuple[int, ...] = ()  # () means none on any rank


@plain
@dataclass(frozen=True, slots=True)
class Disturb:
    """One rank draws from the generators that its process shares (random, numpy.random, torch), the next seeds its own."""

    kind: ClassVar[str] = "disturb"
    rank: int


def drawn(streams: Streams, operation: Draw, rank: int) -> dict[str, list[Array]]:
    """What a Draw yields on this rank. NoNumbers if something else than `count` numbers of [0, 1) comes back."""
    found: dict[str, list[Array]] = {"local": [], "common": []}
    for epoch in operation.epochs:
        streams.set_epoch(epoch)
        if operation.extra:
            _numbers(streams.local(operation.extra[rank]), operation.extra[rank], "local()")
        found["common"].append(_numbers(streams.common(operation.count), operation.count, "common()"))
        found["local"].append(_numbers(streams.local(operation.count), operation.count, "local()"))
    return found


def _numbers(got: Any, count: int, what: str) -> Array:
    if not isinstance(got, np.ndarray) or got.dtype.kind != "f" or got.shape != (count,):
        form = f"{got.dtype}{list(got.shape)}" if isinstance(got, np.ndarray) else type(got).__name__
        raise NoNumbers(f"{what} must return {count} floats in an array of one dimension, got {form}")
    if not np.all((got >= 0) & (got < 1)):
        raise NoNumbers(f"{what} must return numbers of [0, 1), got {got[~((got >= 0) & (got < 1))][0]!r}")
    return got.astype(np.float64)


def disturb(victim: int, rank: int, world_size: int) -> None:
    """Draw from the process's generators on rank `victim`, seed those of the next rank; leave the others alone."""
    torch = sys.modules.get("torch")
    if rank == victim:
        random.random()
        np.random.random_sample()
        if torch is not None:
            torch.rand(1)
    if rank == (victim + 1) % world_size:
        random.seed(rank)
        np.random.seed(rank)
        if torch is not None:
            torch.manual_seed(rank)
