"""Reading an epoch in pieces, each with a new sampler that goes on from the state of the one before."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from ..plain import plain

if TYPE_CHECKING:
    from ..adapter import MakeSampler


class NoState(Exception):
    """What came back is not what extras.ResumableSampler must give."""


@plain
@dataclass(frozen=True, slots=True)
class ResumeSampling:
    """Read `pieces` of so many indices each of one epoch, saving and going on in a new sampler after each; then the rest,
    and `then` all of another epoch.

    Yields pieces: one list of indices for each piece, and the rest; then: the other epoch's; on: what the first sampler
    still gives if it is read on after all this; whole: the epoch, and then_whole the other one, in a sampler that was never
    interrupted. told: a new sampler is told the epoch (set_epoch) after its state was loaded, as most programs do.
    """

    kind: ClassVar[str] = "resume_sampling"
    length: int
    pieces: tuple[int, ...]
    epoch: int = 0
    then: int = 1
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False
    told: bool = True


def resumed(make: MakeSampler, op: ResumeSampling) -> dict[str, list[Any] | list[list[Any]]]:
    """What a ResumeSampling yields on this rank, unchecked. NoState if a state is no mapping."""

    def new() -> Any:
        return make(op.length, shuffle=op.shuffle, seed=op.seed, drop_last=op.drop_last)

    sampler = new()
    sampler.set_epoch(op.epoch)
    first = reading = iter(sampler)
    pieces: list[list[Any]] = []
    for count in op.pieces:
        pieces.append(list(islice(reading, count)))
        state = sampler.state()
        if not isinstance(state, Mapping):
            raise NoState(f"the sampler's state() must return a mapping, got {type(state).__name__}")
        sampler, state = new(), copy.deepcopy(dict(state))
        sampler.load_state(state)
        if op.told:
            sampler.set_epoch(op.epoch)
        reading = iter(sampler)
    pieces.append(list(reading))
    sampler.set_epoch(op.then)
    then = list(sampler)
    whole = new()
    whole.set_epoch(op.epoch)
    found = {"whole": list(whole), "pieces": pieces, "then": then, "on": list(first)}
    whole.set_epoch(op.then)
    return found | {"then_whole": list(whole)}
