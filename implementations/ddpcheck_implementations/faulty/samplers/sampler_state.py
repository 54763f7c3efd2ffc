"""Samplers that lose their position when an epoch is saved and resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..facet_seams import PlainSampler, sampler

RESUMED = "check_sampler_state_resumes_mid_epoch"


@sampler(
    "resumes-at-the-start", RESUMED, seen_in=("Lightning-AI/pytorch-lightning#8126",), cause="position-not-restored"
)
class ResumesAtStart(PlainSampler):
    """The state holds only the epoch, so a resumed epoch starts again."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state({**state, "given": 0})


@sampler("resume-forgets-epoch", RESUMED, cause="rest-of-another-epoch")
class ForgetsEpoch(PlainSampler):
    """The state holds only the position, so a resumed epoch has another order."""

    loaded = False

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state({**state, "epoch": 0})
        self.loaded = True

    def set_epoch(self, epoch: int) -> None:
        if self.loaded and self.begin:
            self.loaded = False
            return
        super().set_epoch(epoch)


@sampler("prefetched-samples-lost", RESUMED, cause="resumed-too-late")
class PrefetchedLost(PlainSampler):
    """The position includes up to two samples that the loader has fetched but training has not seen."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        for at, index in enumerate(indices[begin:], start=begin + 1):
            self.given = min(at + 2, len(indices))
            yield index


@sampler("position-of-all-ranks", RESUMED, cause="resumed-too-late")
class PositionOfAllRanks(PlainSampler):
    """The saved position counts all ranks' samples but is used as this rank's position."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "given": self.given * self.world}


@sampler("position-since-the-last-load", RESUMED, cause="position-since-last-load")
class PositionSinceLoad(PlainSampler):
    """The position counts from the last load, so a second resume repeats samples."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        self.given = 0
        for index in indices[begin:]:
            self.given += 1
            yield index


@sampler("rest-is-shuffled-anew", RESUMED, cause="rest-reshuffled")
class RestShuffled(PlainSampler):
    """A resumed epoch shuffles its unread samples again."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        left = indices[begin:]
        if begin and self.shuffle:
            left = np.random.default_rng(self.seed).permutation(left)[::-1].tolist()
        return super().rest(indices[:begin] + left, begin)


@sampler("every-epoch-cut-after-resume", RESUMED, cause="loaded-position-stays")
class EveryEpochCut(PlainSampler):
    """Every epoch after a resume skips the loaded position."""

    skipped = 0

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.skipped = self.begin

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.begin = self.skipped


@sampler(
    "epoch-after-the-saved-one-missed",
    RESUMED,
    seen_in=("verl-project/verl#7401",),
    cause="loaded-position-in-next-epoch",
)
class NextOneMissed(PlainSampler):
    """After loading the state of a finished epoch, the next epoch is empty."""

    ended = False

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.ended = self.begin == len(self)

    def __iter__(self) -> Iterator[int]:
        self.begin = len(self) if self.ended else self.begin
        self.ended = False
        return super().__iter__()


@sampler(
    "set-epoch-does-not-reach-the-resumed-one",
    RESUMED,
    seen_in=("huggingface/accelerate#4233",),
    cause="set-epoch-lost-after-load",
)
class LoadedStays(PlainSampler):
    """The first set_epoch() after a load has no effect."""

    loaded = False

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.loaded = True

    def set_epoch(self, epoch: int) -> None:
        if not self.loaded or epoch == self.epoch:
            super().set_epoch(epoch)
        else:
            self.loaded = False


@sampler("set-epoch-drops-the-loaded-position", RESUMED, cause="set-epoch-drops-position")
class SetEpochDropsPosition(PlainSampler):
    """set_epoch() drops a loaded position even if the epoch stays the same."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.begin = self.given = 0


@sampler("end-of-epoch-taken-for-its-start", RESUMED, cause="end-of-epoch-begins-again")
class EndTakenForStart(PlainSampler):
    """A loaded position is taken modulo the number of samples."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.begin = self.given = self.begin % max(1, len(self))


@sampler("resumed-in-one-go")
class LaysOutTheRest(PlainSampler):
    """Correct: the rest of the epoch is computed when the state is loaded."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.left = self.share(self.padded(self.order())).tolist()

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        return super().rest(self.left if begin else indices, begin)


@sampler("state-follows-the-sampler", RESUMED, cause="sampler-state-is-no-copy")
class StateFollows(PlainSampler):
    """state() returns the sampler's own mapping, which changes with later reading."""

    def state(self) -> dict[str, Any]:
        return self.__dict__


@sampler("length-after-resume-stays", RESUMED, cause="loaded-length-stays")
class LengthOfWhatWasLeft(PlainSampler):
    """After a resumed epoch, len() stays that of the rest."""

    before = 0

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.before = state["given"]

    def __len__(self) -> int:
        return max(0, super().__len__() - self.before)
