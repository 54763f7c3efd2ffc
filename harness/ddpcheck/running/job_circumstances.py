"""The circumstances of a failing Job: what it does, and what its model has.

A mistake that shows in each of several Jobs only under some circumstance, such as no_sync(), does not explain a failing
Job without that circumstance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache

from ..job import Backward, Calls, CloseWindow, Job, MeasureCollective, Observe, OpenWindow, Operation, Train, ZeroGrad
from ..models.layers import Activity, BatchNorm, Embedding, Head, Linear
from ..verdict import Verdict

NO_SYNC = "no_sync"
_IDLE = "a rank without samples"
_INTERRUPTED = "interrupted"
RARE = frozenset({_IDLE, _INTERRUPTED})
"""Circumstances that few Jobs have: a cause hardly shares them by chance."""
_LARGE = 1024
"""Elements of a tensor that is larger than those of most Jobs."""
_LAYERS = (BatchNorm, Embedding, Activity, Head)
_ORDINARY = (Backward, CloseWindow, Observe, ZeroGrad)
"""Operations that nearly all Jobs have, or that say no more than another."""


def common_circumstances(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """The circumstances of all failing Jobs of the verdicts; empty if none has a Job."""
    known = [circumstances_of(verdict) for verdict in verdicts if verdict.job is not None]
    return frozenset.intersection(*known) if known else frozenset()


def circumstances_of(verdict: Verdict) -> frozenset[str]:
    """The circumstances of the verdict's failing Job, up to the operation that shows the failure."""
    if verdict.job is None:
        return frozenset()
    shown = verdict.diagnosis.operation if verdict.diagnosis is not None else -1
    return _circumstances(verdict.job, shown)


def common_layers(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """The kinds of special layers that the models of all failing Jobs have."""
    return common_circumstances(verdicts).intersection(kind.kind for kind in _LAYERS)


def is_of_another_run(cause: Verdict, symptom: Verdict) -> bool:
    """Whether the failing training run of a cause has a setting, such as clipping, that the run of the other failure lacks."""
    if cause.job is None or symptom.job is None:
        return False
    return not _settings_of_runs(cause.job) <= _settings_of_runs(symptom.job)


@cache
def _settings_of_runs(job: Job) -> frozenset[str]:
    runs = [each for each in job.operations if isinstance(each, Train)]
    settings = {
        "clipping": any(run.max_norm is not None for run in runs),
        "micro-batches": any(run.micro_batches > 1 for run in runs),
        "schedule": any(run.schedule != "constant" for run in runs),
        "resume": any(run.resume for run in runs),
    }
    return frozenset(name for name, made in settings.items() if made)


@cache
def _circumstances(job: Job, shown: int) -> frozenset[str]:
    return frozenset((*_of_operations(job.operations[: shown + 1 or None]), *_of_model(job)))


def _of_operations(done: tuple[Operation, ...]) -> Iterator[str]:
    for operation in done:
        if not isinstance(operation, _ORDINARY):
            yield NO_SYNC if isinstance(operation, OpenWindow) else operation.kind
        if isinstance(operation, Backward):
            yield from _of_backward(operation)
        if isinstance(operation, Calls | MeasureCollective):
            yield operation.collective
    backwards = sum(isinstance(operation, Backward) for operation in done)
    if backwards > 1:
        yield "several backwards"


def _of_backward(backward: Backward) -> Iterator[str]:
    sizes = {len(samples) for samples in backward.samples}
    if len(sizes) > 1:
        yield "uneven batches"
    if 0 in sizes:
        yield _IDLE
    if len(set(backward.branches)) > 1:
        yield "a parameter unused on some ranks"
    if not backward.sync:
        yield NO_SYNC
    if backward.interrupted:
        yield _INTERRUPTED


def _of_model(job: Job) -> Iterator[str]:
    if job.model is None:
        return
    tensors = tuple(job.model.tensors())
    if any(math.prod(tensor.shape) > _LARGE for tensor in tensors):
        yield "a large tensor"
    if any(tensor.role == "buffer" for tensor in tensors):
        yield "a buffer"
    for layer in job.model.layers:
        if isinstance(layer, _LAYERS):
            yield layer.kind
        if isinstance(layer, Linear):
            yield from ("tied",) * bool(layer.uses)
            yield from ("frozen",) * layer.frozen
            yield from ("branch",) * bool(layer.branch)
