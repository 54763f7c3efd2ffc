"""Samplers that lose their place when an epoch is saved in its middle and goes on in a new one."""

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
    """Only the epoch is in the state."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state({**state, "given": 0})


@sampler("resume-forgets-epoch", RESUMED, cause="rest-of-another-epoch")
class ForgetsEpoch(PlainSampler):
    """Only the position is in the state, and set_epoch after loading comes too late for the order that is already laid out."""

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
    """The position is that of a loader that has fetched up to two samples more than training has seen."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        for at, index in enumerate(indices[begin:], start=begin + 1):
            self.given = min(at + 2, len(indices))
            yield index


@sampler("position-of-all-ranks", RESUMED, cause="resumed-too-late")
class PositionOfAllRanks(PlainSampler):
    """The state counts the samples of all ranks, which is taken for this rank's position."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "given": self.given * self.world}


@sampler("position-since-the-last-load", RESUMED, cause="position-since-last-load")
class PositionSinceLoad(PlainSampler):
    """The count begins at 0 with every load: right for the first interruption of an epoch."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        self.given = 0
        for index in indices[begin:]:
            self.given += 1
            yield index


@sampler("rest-is-shuffled-anew", RESUMED, cause="rest-reshuffled")
class RestShuffled(PlainSampler):
    """The rest of an epoch is shuffled once more, so that the order is not the uninterrupted one's."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        left = indices[begin:]
        if begin and self.shuffle:
            left = np.random.default_rng(self.seed).permutation(left)[::-1].tolist()
        return super().rest(indices[:begin] + left, begin)


@sampler("every-epoch-cut-after-resume", RESUMED, cause="loaded-position-stays")
class EveryEpochCut(PlainSampler):
    """The position that was loaded is skipped in every later epoch, too."""

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
    """A state of an epoch that was read to its end: the next epoch has nothing left, for any number."""

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
    """The first set_epoch to another epoch after a load is told to the sampler that was there before."""

    loaded = False

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.loaded = True

    def set_epoch(self, epoch: int) -> None:
        if not self.loaded or epoch == self.epoch:
            super().set_epoch(epoch)
        else:
            self.loaded = False


@sampler("resumed-in-one-go")
class LaysOutTheRest(PlainSampler):
    """Correct: the rest is laid out when the state is loaded, and kept until it was read."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.left = self.share(self.padded(self.order())).tolist()

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        return super().rest(self.left if begin else indices, begin)


@sampler("state-follows-the-sampler", RESUMED, cause="sampler-state-is-no-copy")
class StateFollows(PlainSampler):
    """The state is the sampler's own mapping, which goes on with it: saved in the background, it is that of a later batch."""

    def state(self) -> dict[str, Any]:
        return self.__dict__


@sampler("length-of-what-was-left-stays", RESUMED, cause="loaded-length-stays")
class LengthOfWhatWasLeft(PlainSampler):
    """The samples read before an epoch was resumed are taken off the length, and stay so."""

    before = 0

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.before = state["given"]

    def __len__(self) -> int:
        return max(0, super().__len__() - self.before)
