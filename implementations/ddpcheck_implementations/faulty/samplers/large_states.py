"""Samplers that save a wrong state for large data sets or later epochs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..facet_seams import PlainSampler, sampler
from .sampler_state import RESUMED


@sampler("position-in-a-byte", RESUMED, cause="resumed-too-early")
class PositionInAByte(PlainSampler):
    """The position is saved in one byte."""

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "given": self.given & 255}


@sampler("rest-in-sixteen-bits", RESUMED, cause="indices-narrowed")
class RestInSixteenBits(PlainSampler):
    """The unread indices are saved as 16-bit numbers."""

    left: list[int] | None = None

    def state(self) -> dict[str, Any]:
        rest = self.share(self.padded(self.order()))[self.given :]
        return {**super().state(), "rest": rest.astype(np.uint16).tolist()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.left = state["rest"]

    def set_epoch(self, epoch: int) -> None:
        self.left = self.left if epoch == self.epoch else None
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        if self.left is None:
            return super().__iter__()
        left, self.left = self.left, None
        begin, self.begin = self.begin, 0
        return self.rest([0] * begin + left, begin)


@sampler("epoch-of-the-last-reading-saved", RESUMED, cause="rest-of-another-epoch")
class EpochOfLastReading(PlainSampler):
    """The state holds the epoch that was read last, even if the next one is already set."""

    begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun = self.epoch
        return super().__iter__()

    def state(self) -> dict[str, Any]:
        return {**super().state(), "epoch": self.begun}
