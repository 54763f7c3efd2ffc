"""Reasons why an operation cannot run in a Job, as sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from ..models.spec import Linear, ModelSpec
from . import (
    Aggregate,
    AllGather,
    AllReduce,
    Attempt,
    Backward,
    Barrier,
    BreakConnections,
    Broadcast,
    Calls,
    Clip,
    CloseWindow,
    DataSpec,
    Disturb,
    Draw,
    Join,
    Kill,
    Leave,
    Make,
    MeasureCollective,
    MeasureSteps,
    Observe,
    OnRanks,
    OpenWindow,
    Operation,
    Predict,
    Raise,
    ReduceScatter,
    Remeasure,
    Resume,
    Rounds,
    Sample,
    Save,
    Score,
    SendRecv,
    SetTrainable,
    Sleep,
    Step,
    Switch,
    Train,
    ZeroGrad,
)


class DeclaredJob(Protocol):
    """The parts of a Job that decide which operations can run in it."""

    @property
    def world_size(self) -> int: ...
    @property
    def operations(self) -> tuple[Operation, ...]: ...
    @property
    def model(self) -> ModelSpec | None: ...
    @property
    def data(self) -> DataSpec | None: ...


def misfits(job: DeclaredJob, operation: Operation) -> list[str]:
    """The reasons why this operation cannot run in this Job, one sentence each."""
    kind = type(operation)
    found = ["the Job has no model"] if kind in _ON_REPLICA and job.model is None else []
    judge = _JUDGES.get(kind)
    return found + judge(job, operation) if judge else found


def _of_samples(job: DeclaredJob, operation: Any) -> list[str]:
    found = []
    if len(operation.samples) != job.world_size:
        found.append(f"has samples for {len(operation.samples)} ranks, not {job.world_size}")
    if job.data is None:
        found.append("the Job has no data")
    elif any(rank and not 0 <= min(rank) <= max(rank) < job.data.samples for rank in operation.samples):
        found.append(f"a sample index is outside the {job.data.samples} samples")
    if getattr(operation, "branches", ()) and len(operation.branches) != job.world_size:
        found.append(f"has branches for {len(operation.branches)} ranks, not {job.world_size}")
    if job.data and any(not 0 <= sample < job.data.samples for sample in job.data.poisoned):
        found.append(f"a poisoned sample is outside the {job.data.samples} samples")
    if job.data and any(not 0 <= sample < job.data.samples for sample in job.data.loud):
        found.append(f"a loud sample is outside the {job.data.samples} samples")
    if isinstance(operation, Backward) and operation.interrupted and operation.sync:
        found.append("is interrupted inside no_sync, but synchronised")
    return found + (_of_broken(job, operation) if isinstance(operation, Backward) and operation.broken else [])


def _of_broken(job: DeclaredJob, operation: Backward) -> list[str]:
    found = ["is broken, and has two forward passes, or is interrupted"] * bool(
        operation.second or operation.interrupted
    )
    if operation.sync and set(operation.broken) != set(range(job.world_size)):
        found.append("is broken on some ranks only, and the others would wait for them")
    after = next((after for before, after in pairwise(job.operations) if before is operation), None)
    if not isinstance(after, ZeroGrad):
        found.append("is broken, and no zero_grad is next")
    return found


def _of_backward(job: DeclaredJob, operation: Any) -> list[str]:
    second = operation.second
    found = _of_samples(job, operation) + (_of_samples(job, Backward(second)) if second else [])
    return found + _of_weights(operation) if operation.weights else found


def _of_weights(operation: Backward) -> list[str]:
    found = ["has weights for one of two forward passes"] if operation.second else []
    if list(map(len, operation.weights)) != list(map(len, operation.samples)):
        found.append("needs one weight for each sample of each rank")
    if not all(0 <= weight < math.inf for rank in operation.weights for weight in rank):
        found.append("has a weight that is negative or not finite")
    return found


def _of_batches(job: DeclaredJob, operation: Any) -> list[str]:
    rounds = range(operation.rounds()) if operation.batches else ()
    misfits = [text for number in rounds for text in _of_samples(job, Backward(operation.round(number)))]
    return misfits if rounds else ["no rank has a batch"]


def _of_layers(job: DeclaredJob, operation: Any) -> list[str]:
    known = (
        {layer.name for layer in job.model.layers if isinstance(layer, Linear) and not layer.uses} if job.model else ()
    )
    return [
        f"{name!r} is not a Linear layer with parameters of its own" for name in operation.layers if name not in known
    ]


def _of_group(job: DeclaredJob, operation: Any) -> list[str]:
    world, group = range(job.world_size), operation.group
    found = []
    if group is not None and (sorted(set(group)) != list(group) or not set(group) <= set(world) or not group):
        found.append(f"group {group} is not an ascending choice of ranks below {job.world_size}")
    root = getattr(operation, "root", None)
    if root is not None and root not in (group or world):
        found.append(f"root {root} is not in {group or f'range({job.world_size})'}")
    if isinstance(operation, ReduceScatter):
        size, shape = len(group or world), operation.tensor.shape
        if not shape or shape[0] % size:
            found.append(f"the first dimension of {shape} is not a multiple of the group size {size}")
    return found


def _of_measured(job: DeclaredJob, operation: Any) -> list[str]:
    shared = operation.collective in ("all_gather", "reduce_scatter") and operation.count % job.world_size
    found = [f"{operation.count} elements cannot be divided among {job.world_size} ranks"] if shared else []
    if operation.collective == "send_recv" and job.world_size < 2:
        found.append("a message needs two ranks")
    if operation.in_place and operation.collective != "all_reduce":
        found.append(f"{operation.collective} cannot work in place")
    return found


def _of_rank(job: DeclaredJob, operation: Any) -> list[str]:
    inside = 0 <= operation.rank < job.world_size
    return [] if inside else [f"rank {operation.rank} is not in range({job.world_size})"]


def _of_ranks(job: DeclaredJob, operation: Any) -> list[str]:
    strange = set(operation.ranks) - set(range(job.world_size))
    found = [f"ranks {sorted(strange)} are not in range({job.world_size})"] if strange else []
    return found + misfits(job, operation.operation)


def _of_calls(job: DeclaredJob, operation: Any) -> list[str]:
    found = ["a message needs two ranks"] if operation.collective == "send_recv" and job.world_size < 2 else []
    return found if operation.times > 0 else [*found, f"needs a positive number of calls, not {operation.times}"]


def _of_attempt(job: DeclaredJob, operation: Any) -> list[str]:
    return misfits(job, operation.operation)


def _of_rounds(job: DeclaredJob, operation: Any) -> list[str]:
    return [text for each in operation.operations for text in misfits(job, each)]


def _of_pairs(job: DeclaredJob, operation: Any) -> list[str]:
    world = set(range(job.world_size))
    return [f"pair {pair} is not a pair of two ranks" for pair in operation.pairs if len(set(pair) & world) != 2]


def _of_metrics(job: DeclaredJob, operation: Any) -> list[str]:
    fits = len(operation.values) == len(operation.counts) == job.world_size
    return [] if fits else [f"needs one value and one count for each of {job.world_size} ranks"]


def _of_scores(job: DeclaredJob, operation: Any) -> list[str]:
    found = []
    if len(operation.indices) != job.world_size:
        found.append(f"has samples for {len(operation.indices)} ranks, not {job.world_size}")
    if any(index < -1 for rank in operation.indices for index in rank):
        found.append("an index is neither a sample's index nor -1 (padding)")
    if operation.poisoned is not None and not any(operation.poisoned in rank for rank in operation.indices):
        found.append(f"no rank holds the poisoned sample {operation.poisoned}")
    if operation.name == "auc" and operation.classes != 2:
        found.append(f"auc is a score of 2 classes, not {operation.classes}")
    return found


def _of_reads(job: DeclaredJob, operation: Any) -> list[str]:
    found = [] if operation.disturbed is None else _of_rank(job, Disturb(operation.disturbed))
    fits = len(operation.peeks) in (0, job.world_size)
    return found if fits else [*found, f"has peeks for {len(operation.peeks)} ranks, not {job.world_size}"]


def _of_draws(job: DeclaredJob, operation: Any) -> list[str]:
    fits = len(operation.extra) in (0, job.world_size)
    return [] if fits else [f"has extra draws for {len(operation.extra)} ranks, not {job.world_size}"]


def _of_training(job: DeclaredJob, operation: Any) -> list[str]:
    found = [] if job.data else ["the Job has no data"]
    sizes = (operation.epochs, operation.batch_size, operation.micro_batches)
    if min(sizes) <= 0:
        found.append(f"epochs, batch size and micro-batches must be positive, got {sizes}")
    if operation.stop_after is not None and not 0 < operation.stop_after <= operation.epochs:
        found.append(f"stop_after {operation.stop_after} is not in 1 to {operation.epochs}")
    if operation.folder is None and (operation.resume or operation.rank_0_only or operation.slow_disk):
        found.append("resume, rank_0_only and slow_disk need a folder")
    return found


_ON_REPLICA = frozenset(
    {Backward, ZeroGrad, Clip, Step, Observe, Predict, Save, Resume, SetTrainable, Join, Remeasure, Train, MeasureSteps}
    | {OpenWindow, CloseWindow, Switch, Make}
)
_JUDGES: dict[type, Callable[[DeclaredJob, Any], list[str]]] = {
    Backward: _of_backward,
    **dict.fromkeys((Predict, Remeasure, MeasureSteps), _of_samples),
    **dict.fromkeys((AllReduce, Broadcast, AllGather, ReduceScatter, Barrier), _of_group),
    **dict.fromkeys((Sleep, Raise, Kill, BreakConnections, Leave, Disturb), _of_rank),
    MeasureCollective: _of_measured,
    OnRanks: _of_ranks,
    Attempt: _of_attempt,
    Calls: _of_calls,
    Rounds: _of_rounds,
    SetTrainable: _of_layers,
    Join: _of_batches,
    SendRecv: _of_pairs,
    Draw: _of_draws,
    Sample: _of_reads,
    Aggregate: _of_metrics,
    Score: _of_scores,
    Train: _of_training,
}
