"""The sampler facet: all ranks draw one permutation, and rank r of W takes every W-th element from r on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

WORD = (1 << 64) - 1


class DistributedSampler:
    """Equal numbers of samples on all ranks, reshuffled each epoch.

    If the world size does not divide the length, the order is padded with samples from its start (repeatedly if there are fewer
    samples than ranks); with drop_last its tail is left out instead.
    """

    def __init__(
        self,
        length: int,
        rank: int,
        world_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not below the world size {world_size}")
        if length < 0:
            raise ValueError(f"a data set cannot have {length} samples")
        self._length, self._rank, self._world_size = length, rank, world_size
        self._shuffle, self._seed = shuffle, seed
        self._each = length // world_size if drop_last else -(-length // world_size)
        self._epoch = 0
        self._given = 0  # position of the current iteration
        self._begin = 0  # start of the next iteration

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order. ValueError if it is negative."""
        if epoch < 0:
            raise ValueError(f"there is no epoch {epoch}: count from 0")
        if epoch != self._epoch:
            self._begin = self._given = 0
        self._epoch = epoch

    def state(self) -> dict[str, int]:
        """Return epoch and position of the last iteration, for load_state() of a sampler with the same arguments."""
        return {"epoch": self._epoch, "given": self._given}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Restore a state(): the next iteration yields the rest of the epoch, later ones whole epochs."""
        self._epoch, self._begin = int(state["epoch"]), int(state["given"])
        self._given = self._begin

    def __iter__(self) -> Iterator[int]:
        """Iterate over this rank's indices. state() has the position of the iterator made last."""
        begin, self._begin = self._begin, 0
        self._given = begin
        return self._from(begin)

    def _from(self, begin: int) -> Iterator[int]:
        for position, index in enumerate(self._indices()[begin:], start=begin + 1):
            self._given = position
            yield index

    def _indices(self) -> list[int]:
        order = np.arange(self._length)
        if self._shuffle:
            order = self._stream().permutation(self._length)
        total = self._each * self._world_size
        if total > self._length:
            order = np.resize(order, total)  # repeats from the start
        indices: list[int] = order[self._rank : total : self._world_size].tolist()
        return indices

    def __len__(self) -> int:
        return self._each

    def _stream(self) -> np.random.Generator:
        """One stream for each pair (seed, epoch). With seed + epoch, (42, 1) would have the order of (43, 0)."""
        return np.random.default_rng(np.random.SeedSequence(self._seed & WORD, spawn_key=(self._epoch,)))
