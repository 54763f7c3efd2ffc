"""What must hold: the checks of a data-parallel implementation, by family."""

from __future__ import annotations

from ddpcheck.checks import Check, checks_of

from . import (
    accumulation,
    averages,
    batch_norm,
    buckets,
    checkpoints,
    collectives,
    failures,
    gradients,
    groups,
    in_place,
    joining,
    launching,
    metrics,
    mismatches,
    nonfinite,
    precision,
    programs,
    randomness,
    refusals,
    rendezvous,
    replica_sync,
    sampler,
    sampler_epochs,
    sampler_resuming,
    skipping,
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
    skipping,
    joining,
    accumulation,
    unused,
    buckets,
    replica_sync,
    batch_norm,
    averages,
    traces_left,
    programs,
    collectives,
    transfers,
    precision,
    groups,
    ways,
    in_place,
    sampler,
    sampler_epochs,
    sampler_resuming,
    metrics,
    randomness,
    trainer,
    checkpoints,
    wire,
    launching,
    refusals,
    rendezvous,
    failures,
    mismatches,
)
"""In the order in which they run: those that cost ranks their lives come last, and before those that start
them afresh in any case."""

__all__ = ["CHECKS"]
