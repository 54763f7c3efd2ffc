"""Random numbers: each (seed, epoch, rank) has a stream of its own, and each (seed, epoch) one that all ranks share."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from .sampler import WORD


class RandomStreams:
    """The common stream has key 0 of the epoch, rank r has key r + 1: sums such as seed + rank + epoch would meet again."""

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
