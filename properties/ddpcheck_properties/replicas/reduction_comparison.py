"""Compares synchronised gradients with the mean of the ranks' own, which a backward inside no_sync shows.

Only the reduction can be wrong then, so the bound allows only its roundings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.contract import Capabilities
from ddpcheck.hypotheses.gradients.contributions import Contributions
from ddpcheck.hypotheses.gradients.no_sync import evidence_after_no_sync
from ddpcheck.hypotheses.replicas.special_runs import parameter_not_reset
from ddpcheck.job import Backward, Job, ZeroGrad
from ddpcheck.models.spec import Linear
from ddpcheck.numerics import reduction_bound
from ddpcheck.oracle.divided_losses import of_divided_losses
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..judges import Judge
from ..strategies import GRADIENTS
from .comparison import when


def local_then_synchronised(job: Job) -> Job:
    """The same batch twice: inside no_sync, for every rank's own gradients, then synchronised."""
    backward = _first_backward(job)
    local = replace(backward, sync=False)
    return replace(job, operations=(ZeroGrad(), local, *GRADIENTS, ZeroGrad(), backward, *GRADIENTS))


def reduction_is_tight(promised: Capabilities) -> Judge:
    """The judge of a Job of local_then_synchronised: synchronised gradients are the promised mean or sum of the ranks' own."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        (_, local), (position, synchronised) = trace.all_values("observe")
        own = _own_gradients(local)
        wide = {name: parts.astype(np.float64) for name, parts in own.items()}
        divided = _bounds_of_divided_losses(job, promised)
        for name, parts in own.items():
            mean, bound = _mean_and_bound(job, promised, name, parts, divided.get(name))
            made_of = _contributions(job, promised, wide, name)
            text = f"gradient of {name} ({when(job, position)}) against the mean of the ranks' own"
            for rank, seen in enumerate(synchronised):
                evidence = partial(evidence_after_no_sync, made_of, job, mean, rank)
                try:
                    assertions.within(seen["gradients"][name], mean, bound, text, rank, evidence)
                except Finding as finding:
                    others = {other: wide[other].sum(axis=0) for other in wide if other != name and wide[other].any()}
                    sure = finding.diagnosis.causes
                    raise finding.blaming(parameter_not_reset(sure, seen["gradients"], others) or sure) from None

    return judge


def _first_backward(job: Job) -> Backward:
    return next(operation for operation in job.operations if isinstance(operation, Backward))


def _own_gradients(local: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """The gradients inside no_sync by name, with the ranks as first axis."""
    for name in local[0]["gradients"]:
        there = all(seen["gradients"][name] is not None for seen in local)
        assertions.that(
            there, f"gradient of {name}: got none inside no_sync on some rank", causes.GRADIENT_GATHERED_ELSEWHERE()
        )
    return {name: np.stack([seen["gradients"][name] for seen in local]) for name in local[0]["gradients"]}


def _bounds_of_divided_losses(job: Job, promised: Capabilities) -> dict[str, Array]:
    """Bounds on gradients, by name, if each rank divides its loss; none if it divides by a power of two, without rounding."""
    if promised.replica.uneven_batches == "weighted" or job.world_size & (job.world_size - 1):
        return of_divided_losses(job, _first_backward(job), promised)
    return {}


def _mean_and_bound(
    job: Job, promised: Capabilities, name: str, parts: Array, divided: Array | None
) -> tuple[Array, Array]:
    """The promised mean or sum of `parts`, the ranks' own gradients, and the bound on its error: W - 1 additions and two
    roundings for the division, and `divided` for the division of each rank's loss.
    """
    world = job.world_size
    mean, size = _mean(job, promised, parts)
    size = size + 2 * _penalty(job, name) * (world if promised.replica.gradient == "sum" else 1)
    dtype = promised.replica.dtype_of_reduction(str(parts.dtype))
    bound = reduction_bound(size * world, world, dtype, world + 2) / world
    if divided is not None:
        bound = bound + (_mean(job, promised, divided)[1] if np.isfinite(divided).all() else np.inf)
    return mean, bound


def _contributions(job: Job, promised: Capabilities, own: Mapping[str, Array], name: str) -> Contributions:
    parts, weighted = own[name], promised.replica.uneven_batches == "weighted"
    counts = np.array(_counts(job))
    return Contributions(
        parts, parts, parts, None, 1, counts, inside=False, weighted=weighted, others=own, earlier=parts
    )


def _counts(job: Job) -> list[int]:
    """The ranks' batch sizes."""
    return [len(samples) for samples in _first_backward(job).samples]


def _penalty(job: Job, name: str) -> Array | float:
    """The size of a penalty's part of this gradient, before any step. All ranks have the same part, so it may be added
    before or after the reduction; both parts are then rounded, and each may be larger than their sum.
    """
    assert job.model is not None
    for layer in job.model.layers:
        if isinstance(layer, Linear) and layer.penalty and name == f"{layer.name}.weight":
            weight = np.max([abs(job.initial(rank)[name].astype(np.float64)) for rank in range(job.world_size)], axis=0)
            return np.asarray(weight * abs(layer.penalty * job.model.loss_scale))
    return 0.0


def _mean(job: Job, promised: Capabilities, parts: Array) -> tuple[Array, Array]:
    """The promised combination of the ranks' parts, correctly rounded to float64, and that of their absolute values."""
    weights = _counts(job) if promised.replica.uneven_batches == "weighted" else [1] * len(parts)
    divisor = sum(weights) / (len(parts) if promised.replica.gradient == "sum" else 1)
    columns = np.stack(
        [part.astype(np.float64).reshape(-1) * weight for part, weight in zip(parts, weights, strict=True)]
    )
    total = np.array([math.fsum(column) for column in columns.T]) if parts.dtype == np.float64 else columns.sum(axis=0)
    shape = parts.shape[1:]
    return (total / divisor).reshape(shape), (abs(columns).sum(axis=0) / divisor).reshape(shape)
