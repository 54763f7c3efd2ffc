"""What must hold: the checks of a data-parallel implementation, by family."""

from __future__ import annotations

from ddpcheck.checks import Check, checks_of

from . import (
    accumulation,
    buckets,
    checkpoints,
    collectives,
    failures,
    gradients,
    groups,
    launching,
    metrics,
    mismatches,
    nonfinite,
    precision,
    programs,
    randomness,
    rendezvous,
    replica_sync,
    sampler,
    sampler_epochs,
    traces_left,
    trainer,
    trajectories,
    transfers,
    unused,
    ways,
    wire,
)

CHECKS: tuple[Check, ...] = checks_of(
    gradients,
    nonfinite,
    trajectories,
    accumulation,
    unused,
    buckets,
    replica_sync,
    traces_left,
    programs,
    collectives,
    transfers,
    precision,
    groups,
    ways,
    sampler,
    sampler_epochs,
    metrics,
    randomness,
    trainer,
    checkpoints,
    failures,
    launching,
    mismatches,
    wire,
    rendezvous,
)

__all__ = ["CHECKS"]
