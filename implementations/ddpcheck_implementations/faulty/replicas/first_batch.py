"""Replicas that reuse facts of the first batch for all batches."""

from __future__ import annotations

import numpy as np

from ..base import PlainReplica, fault


@fault(
    "weights-of-the-first-batch",
    "check_uneven_batches_are_weighted_by_size",
    cause="weighted-by-other-sizes",
    uneven_batches="weighted",
)
class WeightsOfFirstBatch(PlainReplica):
    """Ranks are weighted by the sizes of their first batches."""

    factor: float | None = None

    def synchronise(self, batch_size: int) -> None:
        if self.factor is None:
            self.factor = batch_size * self.world / float(self.comm.all_reduce(np.array([float(batch_size)]))[0])
        self.local = {name: np.asarray(gradient * self.factor, gradient.dtype) for name, gradient in self.local.items()}
        super().synchronise(batch_size)


@fault(
    "list-of-the-first-backward",
    "check_unused_parameters_may_differ_by_rank_and_step",
    "check_unused_parameters_on_some_ranks_count_as_zero",
    cause="not-reduced",
)
class ListOfFirstBackward(PlainReplica):
    """Only parameters with a gradient in the first backward are reduced."""

    listed: list[str] | None = None

    def used_somewhere(self) -> list[str]:
        used = super().used_somewhere()
        self.listed = used if self.listed is None else self.listed
        return [name for name in used if name in self.listed]

    def synchronise(self, batch_size: int) -> None:
        held = dict(self.local)
        super().synchronise(batch_size)
        self.local = {name: gradient for name, gradient in held.items() if name not in (self.listed or ())}
