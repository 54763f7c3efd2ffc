"""Hypotheses about gradients, parameters and buffers of runs that check one circumstance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...causes import Cause, batch_norm, programs, updates, values
from ...causes import replicas as causes
from ...job import Backward, Job
from ...models.spec import ModelSpec
from ...seeded_values import Array
from ..arrays.evidence import WhatIf
from ..losses import REPORTED_ONLY


def other_initial_values(of_ranks: Sequence[Array], rank: int, *, unsaved: bool = False) -> WhatIf:
    """Values of a new replica that are not rank 0's. of_ranks: those that each rank's model began with. unsaved: the state
    dict leaves the tensor out, and the others are right.
    """
    own = causes.UNSAVED_BUFFER_NOT_SENT if unsaved else causes.OWN_INITIAL_VALUE
    yield own(rank=rank), of_ranks[rank]
    for other in range(1, len(of_ranks)):
        if other != rank:
            yield causes.INITIAL_VALUE_OF_OTHER(rank=rank, other=other), of_ranks[other]
    yield causes.INITIAL_VALUES_AVERAGED(), np.mean(of_ranks, axis=0)
    yield causes.SPLIT_BEFORE_BROADCAST(), _split(of_ranks)


def lost_steps(before: Array, move: Array, count: int, least: int) -> WhatIf:
    """A parameter after `count` equal steps, each of which adds `move`, if some are lost and `least` or more are not."""
    for there in range(least, count):
        yield causes.STEPS_LOST(there=str(there), count=count), np.asarray(before + move * there)


def own_steps(expected: Array, of_ranks: Sequence[Array], rank: int) -> WhatIf:
    """A parameter after SGD steps on a linear loss, if some used each rank's own gradient: the mean over ranks is right.

    of_ranks: the parameter on each rank.
    """
    yield updates.UPDATED_BY_OWN(), np.asarray(expected + (of_ranks[rank] - np.mean(of_ranks, axis=0)))


def lost_micro_batches(once: Array, count: int) -> WhatIf:
    """The gradient of `count` equal micro-batches, of which one gives `once`, if some are lost."""
    for there in range(count):
        yield causes.MICRO_BATCHES_LOST(there=str(there), count=count), once * there


def nonfinite_hidden(got: float) -> Cause | None:
    """got: an element of a reduced gradient that is finite, and should not be, or the other way round."""
    return causes.NONFINITE_HIDDEN_FROM_RANKS() if np.isfinite(got) else None


def nonfinite_from_nowhere(got: float) -> Cause:
    return causes.NONFINITE_FROM_NOWHERE()


def replaced_buffers_not_sent(model: ModelSpec) -> Cause | None:
    return batch_norm.REPLACED_BUFFERS_NOT_SENT() if "replaced_buffers" in model.features() else None


def statistics_of_each_rank(model: ModelSpec) -> Cause:
    return batch_norm.STATISTICS_OF_EACH_RANK()


def right_the_first_time(position: int) -> Cause | None:
    """position: of the look that shows a wrong gradient; the first look at the same batch is at 2."""
    return causes.RIGHT_THE_FIRST_TIME() if position > 2 else None


def ids_or_labels_narrowed(job: Job, kind: str, sure: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Ids or labels past 16 bits are kept in a narrower type. kind, sure: of the wrong value, and its causes so far.

    They explain a wrong loss best, unless a hypothesis gives all of its digits. The other causes of a wrong gradient may
    hold for small ids and labels, too.
    """
    assert job.model is not None
    if any(cause.id in (causes.IDS_NARROWED.id, *REPORTED_ONLY) for cause in sure[:1]):
        return sure
    what = "Ids" if "embedding" in job.model.features() else "Labels"
    return (*(() if kind == "loss" else sure), causes.IDS_NARROWED(what=what, bits=(7, 8, 15, 16)))


def broken_backward_left(job: Job, operation: int) -> Cause | None:
    """An exception ended a backward, and the value that this operation shows is the first wrong one."""
    (broke,) = (at for at, each in enumerate(job.operations) if isinstance(each, Backward) and each.broken)
    return None if 0 <= operation <= broke else causes.BROKEN_BACKWARD_LEFT(operation=broke)


def join_stopped_by_buffers(job: Job) -> Cause | None:
    """A run with join() did not end, and those without buffers did."""
    return causes.JOIN_BUFFERS() if job.model is not None and "buffer" in job.model.features() else None


def parameter_not_reset(
    sure: tuple[Cause, ...], shown: Mapping[str, Any], sums: Mapping[str, Array]
) -> tuple[Cause, ...]:
    """One gradient is twice too large among others that are not: it is not the reduction that is wrong.

    sure: the causes found so far. shown: the rank's gradients. sums: of all ranks' own, for the other parameters.
    """
    if not sure or (sure[0].id, sure[0].get("world_size")) != (values.SUMMED_NOT_AVERAGED.id, 2):
        return ()
    right = any(shown[name] is not None and _nearly(shown[name], sums[name] / 2) for name in sums)
    return (causes.ONE_PARAMETER_NOT_RESET(), sure[0]) if right else ()


def _nearly(got: Array, expected: Array) -> bool:
    """Relative to the largest element: a gradient that is only rounding proves nothing."""
    return bool(np.abs(got - expected).max() <= 1e-3 * np.abs(expected).max())


def view_of_argument(changed: Sequence[str]) -> Cause | None:
    """changed: the names of changed arrays of a method's argument; "" where the names themselves have changed."""
    return programs.VIEW_OF_ARGUMENT() if all(changed) else None


def callers_mapping_changed(changed: Sequence[str]) -> Cause:
    return programs.CALLERS_MAPPING_CHANGED()


def evaluation_changes_gradients(sure: tuple[Cause, ...]) -> Cause | None:
    """sure: the causes found so far for a gradient that is wrong only with evaluations."""
    told = {programs.GRADIENTS_TAKEN_BY.id, programs.CHANGES_GRADIENTS.id}
    return None if any(cause.id in told for cause in sure) else programs.EVALUATION_CHANGES_GRADIENTS()


@dataclass(frozen=True)
class TwoForwards:
    """A failure of two forward passes with one backward. kind: of the wrong value. raised: whether a rank raised.

    sure: the causes found so far.
    """

    kind: str
    raised: bool
    sure: tuple[Cause, ...]


def forward_changes_buffers(of: TwoForwards) -> Cause | None:
    """The second forward pass changes tensors that backward needs, and backward notices."""
    return causes.FORWARD_CHANGES_BUFFERS() if of.raised else None


def batches_taken_as_one(of: TwoForwards) -> tuple[Cause, ...]:
    """A wrong loss, such as that of all samples."""
    return (*of.sure, causes.BATCHES_TAKEN_AS_ONE()) if of.kind == "loss" else ()


def losses_averaged(of: TwoForwards) -> tuple[Cause, ...]:
    """Wrong gradients, such as those of the mean of both losses."""
    return (*of.sure, causes.LOSSES_AVERAGED()) if of.kind == "gradients" else ()


@dataclass(frozen=True)
class DifferentReplicas:
    """An array that should have the same bits on all ranks: of one rank, and of rank 0."""

    got: Array
    first: Array


def last_bits_differ(of: DifferentReplicas) -> Cause | None:
    """Terms that cancel leave a difference of many ulp of the rest, but of few ulp of the terms."""
    if of.got.dtype.kind != "f":
        return None
    few = 64 * np.finfo(of.got.dtype).eps * np.max(np.abs(of.first))
    return causes.LAST_BITS_DIFFER() if np.all(np.abs(of.got - of.first) <= few) else None


def replicas_differ(of: DifferentReplicas) -> Cause:
    return causes.REPLICAS_DIFFER()


def _split(of_ranks: Sequence[Array]) -> Array:
    """One array of which each rank holds rows with its own initial values."""
    tall = [np.atleast_1d(of_rank) for of_rank in of_ranks]
    rows = -(-len(tall[0]) // len(tall))
    parts = [of_rank[rank * rows : (rank + 1) * rows] for rank, of_rank in enumerate(tall)]
    return np.concatenate(parts).reshape(of_ranks[0].shape)
