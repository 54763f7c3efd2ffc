"""One training step whose all-reduces run during the backward pass, bucket after bucket.

The model is that of Li et al., PyTorch Distributed, VLDB 13(12), 2020: a bucket's all-reduce starts when its gradients
are ready and the previous one has ended; there is one stream of communication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Compute:
    """One rank's own work, in seconds. `samples` are measured times of whole steps, some of which are late."""

    forward: float
    backward: float
    optimizer: float = 0.0
    samples: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True, slots=True)
class Bucket:
    """A number of bytes, whose gradients are ready after this share of the backward pass."""

    bytes: float
    ready: float


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step of all ranks, and of its parts: all `communication`, and the `exposed` part, which is not
    hidden.
    """

    total: float
    communication: float
    exposed: float
    jitter: float

    @property
    def hidden(self) -> float:
        """The share of communication that is hidden behind computing."""
        return 1.0 - min(1.0, self.exposed / self.communication) if self.communication else 1.0


def equal_buckets(model_bytes: float, bucket_bytes: float) -> tuple[Bucket, ...]:
    """Buckets as torch makes them, with 1 MiB first. Gradients are ready at an even rate: bytes per second of
    backward.
    """
    buckets: list[Bucket] = []
    done = 0.0
    while done < model_bytes:
        size = min(2.0**20 if not buckets else bucket_bytes, bucket_bytes, model_bytes - done)
        done += size
        buckets.append(Bucket(size, done / model_bytes))
    return tuple(buckets)


def step(
    compute: Compute,
    buckets: Sequence[Bucket],
    all_reduce: Callable[[float], float],
    world_size: int,
    *,
    slowed_communication: float = 1.0,
    slowed_compute: float = 1.0,
) -> Step:
    """The step of `world_size` ranks; `all_reduce` gives the seconds for a number of bytes.

    `slowed_communication` (k) and `slowed_compute` (c) are the factors by which the two slow each other down when they
    overlap, as measured by running both at once; 1 for an accelerator whose communication uses none of its units.
    """
    backward_end = compute.forward + slowed_compute * compute.backward
    end = 0.0
    communication = 0.0
    for bucket in buckets:
        ready = compute.forward + slowed_compute * compute.backward * bucket.ready
        took = slowed_communication * all_reduce(bucket.bytes)
        end = max(ready, end) + took
        communication += took
    late = expected_lateness(compute.samples, world_size)
    total = max(backward_end, end) + compute.optimizer + late
    return Step(total, communication, max(0.0, total - late - compute.total), late)


def expected_lateness(samples: Sequence[float], world_size: int) -> float:
    """J(p): the expected delay of the slowest of p ranks after the mean, if each draws its time from `samples`.

    The expectation of the largest of p draws is sum x_(i) [(i/m)^p - ((i-1)/m)^p] over the m sorted samples. It cannot
    exceed the largest sample, so for p far above m it is too small.
    """
    if not samples:
        return 0.0
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    edges = (np.arange(len(ordered) + 1) / len(ordered)) ** world_size
    return float(ordered @ np.diff(edges) - ordered.mean())
