"""Random streams: one for each (seed, epoch, rank), and one common to all ranks for each (seed, epoch)."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from .sampler import WORD


class RandomStreams:
    """The streams of a rank. Keys are (epoch, 0) for the common stream and (epoch, rank + 1) for its own; sums would collide."""

    def __init__(self, rank: int, seed: int) -> None:
        self._rank, self._seed = rank, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self._common, self._local = (self._stream(epoch, key) for key in (0, self._rank + 1))

    def local(self, count: int) -> Array:
        return self._local.random(count)

    def common(self, count: int) -> Array:
        return self._common.random(count)

    def _stream(self, epoch: int, key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed & WORD, spawn_key=(epoch, key)))
