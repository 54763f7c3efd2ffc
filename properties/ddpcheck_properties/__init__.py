"""What must hold: the checks of a data-parallel implementation, by family."""

from __future__ import annotations

from ddpcheck.checks import Check, checks_of

from . import footprints
from .collectives import (
    all_reduce,
    arguments,
    contents,
    groups,
    handles,
    in_place,
    large_arrays,
    many_calls,
    precision,
    rounding,
    same_array,
    transfers,
    ways,
)
from .lifecycle import after_death, closing, failing_ranks, launching, layout_of_hosts, mismatches, refusals, rendezvous
from .metrics import means, scores
from .randomness import next_run, streams, streams_in_use
from .replicas import (
    accumulation,
    auxiliary_terms,
    averages,
    batch_norm,
    batch_norm_local,
    batch_norm_steps,
    broken_backwards,
    buckets,
    gradients,
    joining,
    kinds_of_parameters,
    large_ids,
    large_models,
    long_windows,
    nonfinite,
    programs,
    replica_sync,
    rich_programs,
    sample_weights,
    skipping,
    timeline,
    traces_left,
    trajectories,
    two_replicas,
    unused,
    waiting,
)
from .samplers import epochs, orders, resuming, shards
from .training import checkpoints, early_stopping, rich_runs, runs
from .wire import traffic

CHECKS: tuple[Check, ...] = checks_of(
    gradients,
    sample_weights,
    auxiliary_terms,
    waiting,
    nonfinite,
    large_ids,
    trajectories,
    large_models,
    skipping,
    joining,
    accumulation,
    long_windows,
    unused,
    buckets,
    kinds_of_parameters,
    timeline,
    replica_sync,
    batch_norm,
    batch_norm_local,
    batch_norm_steps,
    broken_backwards,
    averages,
    traces_left,
    programs,
    rich_programs,
    two_replicas,
    groups,  # before all that use some: what the first call in each is counts
    all_reduce,
    rounding,
    transfers,
    precision,
    handles,
    ways,
    arguments,
    same_array,
    many_calls,
    large_arrays,
    contents,
    in_place,
    shards,
    orders,
    epochs,
    resuming,
    means,
    scores,
    streams_in_use,
    streams,
    runs,
    early_stopping,
    checkpoints,
    rich_runs,
    footprints,
    traffic,
    launching,
    refusals,
    next_run,
    rendezvous,
    layout_of_hosts,
    failing_ranks,
    after_death,
    closing,
    mismatches,
)
"""In the order in which they run: those that cost ranks their lives come last, and before those that start
them afresh in any case."""

__all__ = ["CHECKS"]
