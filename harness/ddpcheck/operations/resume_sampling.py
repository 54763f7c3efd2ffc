"""Reads an epoch in pieces; each piece uses a new sampler that resumes from the previous sampler's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class ResumeSampling:
    """Read one epoch in pieces of these numbers of indices. After each piece the state is saved and loaded into a new
    sampler. Then read the rest, and all of the epoch `then`; None reads once more without set_epoch.

    Yields pieces: a list of indices for each piece, and the rest; then: the indices of epoch `then`; then_length: its
    len(), taken before it was read; on: the rest of the first sampler's epoch, read last; straight: epoch `then` in a
    sampler that has just loaded the last state; whole and then_whole: both epochs in a sampler that was never
    interrupted; state_changed: whether a saved or loaded state was changed later.

    told: each new sampler gets set_epoch after it has loaded the state, as in most programs. used: the first sampler
    has read epoch + 1 before, and is first saved right after set_epoch. at_once: each new sampler saves its loaded
    state at once, and another sampler continues from that state. ahead: rank r reads r times as many indices more in each
    piece, so that the ranks' positions differ.
    """

    kind: ClassVar[str] = "resume_sampling"
    length: int
    pieces: tuple[int, ...]
    epoch: int = 0
    then: int | None = 1
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    told: bool = True
    used: bool = False
    at_once: bool = False
    ahead: int = 0

    def counts(self, rank: int) -> tuple[int, ...]:
        """The number of indices that a rank reads in each piece."""
        return (0,) * self.used + tuple(count + self.ahead * rank for count in self.pieces)
