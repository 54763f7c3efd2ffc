"""Replicas that behave differently on ranks without samples, without gradients or with many samples."""

from __future__ import annotations

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault

UNEVEN = "check_uneven_batches_count_equally_per_rank"
SAVED = "check_resumed_training_matches_one_process"


@fault("rank-without-gradients-does-not-step", UNEVEN, cause="not-updated")
class DoesNotStep(PlainReplica):
    """A rank whose own gradients are zero or None skips the step."""

    found = False

    def synchronise(self, batch_size: int) -> None:
        self.found = self.found or any(gradient.any() for gradient in self.local.values())
        super().synchronise(batch_size)

    def step(self) -> None:
        if self.found:
            super().step()
        self.found = False


@fault("rank-without-samples-does-not-step", UNEVEN, cause="not-updated")
class WithoutSamplesDoesNotStep(PlainReplica):
    """A rank with an empty batch skips the step."""

    samples = 0

    def backward(self, batch: Batch) -> float:
        self.samples += len(batch.inputs)
        return super().backward(batch)

    def step(self) -> None:
        if self.samples:
            super().step()
        self.samples = 0


@fault("large-local-batch-reduces-in-one-message", UNEVEN)
class LargeBatchInOneMessage(PlainReplica):
    """A rank with more than 16 samples sends all gradients in one message; other ranks send several."""

    def synchronise(self, batch_size: int) -> None:
        if batch_size <= 16:
            super().synchronise(batch_size)
            return
        names = self.used_somewhere()
        rows = [self.mine(name) for name in names]
        flat = np.concatenate([row.reshape(-1) for row in rows]) if rows else np.zeros(0)
        mean = np.asarray(self.comm.all_reduce(flat) / self.world, flat.dtype)
        parts = np.split(mean, np.cumsum([row.size for row in rows])[:-1])
        self.synced = {**self.synced, **{n: p.reshape(r.shape) for n, p, r in zip(names, parts, rows, strict=True)}}
        self.local = {}


@fault("optimizer-state-merged-by-sum", SAVED)
class StateMergedBySum(PlainReplica):
    """A checkpoint holds the sum over ranks of optimizer state that every rank has in full."""

    def state(self) -> dict[str, Array]:
        found = super().state()
        merged = {name: value for name, value in found.items() if name.startswith("optimizer.")}
        added = {name: np.asarray(self.comm.all_reduce(value), value.dtype) for name, value in merged.items()}
        return {**found, **added}
