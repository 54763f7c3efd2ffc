"""Reading an epoch in pieces, each with a new sampler that resumes from the previous sampler's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class ResumeSampling:
    """Read `pieces` of so many indices each of one epoch, saving and going on in a new sampler after each; then the rest,
    and `then` all of another epoch, or of one more without set_epoch (None).

    Yields pieces: one list of indices for each piece, and the rest; then: the other epoch's; then_length: what len() said of
    that before it was read; on: the rest of the first sampler, read after all this; straight: the indices of a sampler
    that has loaded the last state gives of the other epoch, if it is told that at once; whole: the epoch, and then_whole the
    other one, in a sampler that was never interrupted. told: a new sampler is told the epoch (set_epoch) after its state was
    loaded, as most programs do. used: the first sampler has read epoch + 1 before, and is saved first when it was told the
    epoch, and nothing of it was asked for. at_once: a new sampler saves its loaded state at once, and that state goes on in one
    more.
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
