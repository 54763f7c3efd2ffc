"""Faults of a training run, by place: each changes a value that the run computes there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.data_parallel.checkpoint import Checkpoint

Trainer = Any
"""The _Trainer of trainers.py, with the state of its run."""


def _of(arrays: Mapping[str, Array], change: Callable[[Array], Any]) -> dict[str, Any]:
    return {
        name: change(array).astype(array.dtype) if array.dtype.kind == "f" else array for name, array in arrays.items()
    }


def _half(array: Array) -> Array:
    return array.astype(np.float16)


def _pick(batch: Batch, places: Sequence[int] | Array) -> Batch:
    return replace(batch, inputs=batch.inputs[places], targets=batch.targets[places])


def _without_moments(found: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in found.items() if not name.startswith("optimizer.")}


def _ended(t: Trainer, array: Array, by: Any) -> Array:
    array.reshape(-1)[-1:] = by
    return array


def _later(t: Trainer, steps: int) -> float:
    at = min(max(t.progress.step + steps, 0), t.steps)
    return float(t.task.optimizer.lr * ((t.steps - at) / t.steps if t.task.schedule == "linear" else 1))


def _loss_of(parts: Sequence[tuple[Sequence[float], Sequence[Sequence[int]]]], weigh: bool = True) -> float:
    losses = [loss for one, _ in parts for loss in one]
    counts = [len(rows) if weigh else 1 for _, window in parts for rows in window]
    return float(np.dot(losses, counts) / max(1, sum(counts)))


def _own_best(t: Trainer, progress: Checkpoint) -> Checkpoint:
    lower = _loss_of(t.parts) < t.kept.lowest
    return replace(t.kept, lowest=_loss_of(t.parts), best=t.replica.parameters()) if lower else t.kept


def _last_batch(windows: list[Any], change: Callable[[list[Any]], list[Any]]) -> list[Any]:
    return [*windows[:-1], change(windows[-1])] if windows else windows


def _live(t: Trainer, progress: Checkpoint) -> Checkpoint:
    from effect_reports import report_effect

    report_effect()
    return replace(progress, best=t.replica._network.parameters) if progress.best else progress


EFFECTS: dict[str, tuple[str, Callable[[Trainer, Any], Any]]] = {
    # samples and batches
    "the order is that of the next epoch": ("order", lambda t, r: _order(t, t.epoch + 1)),
    "the last sample is left out": ("order", lambda t, r: r[:-1]),
    "the first sample comes once more in place of the last": ("order", lambda t, r: [*r[:-1], r[0]]),
    "the last window is left out": ("windows", lambda t, r: r[:-1]),
    "the last window comes twice": ("windows", lambda t, r: r + r[-1:]),
    "a short last batch is left out": (
        "windows",
        lambda t, r: _last_batch(r, lambda w: [rows for rows in w if len(rows) == t.task.batch_size] or w),
    ),
    "a short last batch is filled up with samples of the first": (
        "windows",
        lambda t, r: _last_batch(r, lambda w: [*w[:-1], [*w[-1], *r[0][0]][: t.task.batch_size]]),
    ),
    "each micro-batch is a step": ("windows", lambda t, r: [[rows] for window in r for rows in window]),
    "the last two windows are one": (
        "windows",
        lambda t, r: [*r[:-2], [*r[-2], *r[-1]]] if len(r) > 1 else r,
    ),
    "targets are those of the sample before": (
        "batch",
        lambda t, r: replace(r, targets=np.roll(r.targets, 1, axis=0)),
    ),
    "a batch's last sample is left out": ("batch", lambda t, r: _pick(r, range(max(1, len(r.inputs) - 1)))),
    "a batch's last sample is its first": ("batch", lambda t, r: _pick(r, [*range(len(r.inputs) - 1), 0])),
    "the inputs are rounded to float16": (
        "batch",
        lambda t, r: replace(r, inputs=_of({"": r.inputs}, _half)[""]),
    ),
    # gradients
    "micro-batches weigh equally": ("weight", lambda t, r: 1 / len(t.window)),
    "gradients of micro-batches are added up": ("weight", lambda t, r: 1.0),
    "a window is divided by the samples of a full one": (
        "weight",
        lambda t, r: len(t.rows) / (t.task.micro_batches * t.task.batch_size),
    ),
    "this rank's gradient is zero": ("own gradient", lambda t, r: r * 0),
    "this rank's gradient is in it twice": ("own gradient", lambda t, r: r * 2),
    "the gradient is rounded to float16 before": ("own gradient", lambda t, r: r.astype(np.float16)),
    "this rank clips before": (
        "own gradient",
        lambda t, r: r * min(1.0, (t.task.max_norm or 1.0) / max(1e-9, float(np.linalg.norm(r)))),
    ),
    "the gradient is this rank's own": ("gradient", lambda t, r: t.own),
    "gradients are summed over ranks": ("gradient", lambda t, r: r * t.engine.world_size),
    "gradients are divided by the world size twice": ("gradient", lambda t, r: r / t.engine.world_size),
    "the gradient is 1.001 x too large": ("gradient", lambda t, r: r * 1.001),
    "the gradient's last element is zero": ("gradient", lambda t, r: _ended(t, r, 0)),
    "the gradient's last element is this rank's own": ("gradient", lambda t, r: _ended(t, r, t.own[-1:])),
    "the gradient has another last bit on rank 1": (
        "gradient",
        lambda t, r: np.nextafter(r, math.inf) if t.engine.rank == 1 else r,
    ),
    "the gradient before is added": ("gradient", lambda t, r: r + t.reduced if t.reduced.size else r),
    "the gradient is that before": ("gradient", lambda t, r: t.reduced if t.reduced.size else r),
    "elements of the gradient are cut off at 0.1": ("gradient", lambda t, r: np.clip(r, -0.1, 0.1)),
    "it is not clipped": ("norm", lambda t, r: None),
    "it is clipped to 1": ("norm", lambda t, r: 1.0),
    "it is clipped to twice the norm": ("norm", lambda t, r: r and 2 * r),
    # steps
    "the learning rate is that of the next step": ("rate", lambda t, r: _later(t, 1)),
    "the learning rate is that of the step before": ("rate", lambda t, r: _later(t, -1)),
    "the learning rate is that of the epoch's first step": ("rate", lambda t, r: _later(t, 1 - t.in_epoch)),
    "the learning rate is that of the steps of this run": (
        "rate",
        lambda t, r: _later(t, t.number - 1 - t.progress.step),
    ),
    "the learning rate is that of the task": ("rate", lambda t, r: t.task.optimizer.lr),
    "the learning rate is multiplied by the world size": ("rate", lambda t, r: r * t.engine.world_size),
    "the learning rate is 1 % too small": ("rate", lambda t, r: r * 0.99),
    "weight decay is missing": ("optimizer", lambda t, r: replace(r, weight_decay=0.0)),
    "weight decay is 0.01": ("optimizer", lambda t, r: replace(r, weight_decay=0.01)),
    "momentum is 0.9": ("optimizer", lambda t, r: replace(r, momentum=0.9)),
    "betas are 0.9 and 0.999": ("optimizer", lambda t, r: replace(r, betas=(0.9, 0.999))),
    "momentum begins anew": ("momentum", lambda t, r: {}),
    "momentum is rounded to float16": ("momentum", lambda t, r: _of(r, _half)),
    "the step changes nothing": ("parameters", lambda t, r: t.stale),
    "the step is twice as far": ("parameters", lambda t, r: {name: 2 * r[name] - t.stale[name] for name in r}),
    "parameters are rounded to float16": ("parameters", lambda t, r: _of(r, _half)),
    "parameters are rounded to float32": ("parameters", lambda t, r: _of(r, np.float32)),
    "the first layer stays as it is": ("parameters", lambda t, r: r | dict([*t.stale.items()][:2])),
    "parameters are halfway to those before": (
        "parameters",
        lambda t, r: {name: (r[name] + t.stale[name]) / 2 for name in r},
    ),
    # losses, and the end
    "the loss is this rank's own": ("loss", lambda t, r: t.sums[t.engine.rank, 0] / max(1, t.sums[t.engine.rank, 1])),
    "the loss is summed over ranks": ("loss", lambda t, r: r * t.engine.world_size),
    "the loss is the last window's": ("loss", lambda t, r: _loss_of(t.parts[-1:])),
    "the loss is the mean of this rank's batches": ("loss", lambda t, r: _loss_of(t.parts, weigh=False)),
    "the loss is rounded to float16": ("loss", lambda t, r: float(np.float16(r))),
    "the loss is a moving average": ("loss", lambda t, r: (r + t.losses[-2]) / 2 if len(t.losses) > 1 else r),
    "the loss is that of the epoch before": ("loss", lambda t, r: t.losses[-2] if len(t.losses) > 1 else r),
    "the loss is 0": ("loss", lambda t, r: 0.0),
    "it ends there": ("end", lambda t, r: True),
    "it does not end early": ("end", lambda t, r: False),
    "it ends as soon as the loss is not lower": ("end", lambda t, r: r or t.rises),
    "it ends where the loss falls by less than 0.01": (
        "end",
        lambda t, r: r or (len(t.losses) > 1 and t.losses[-2] - t.losses[-1] < 0.01),
    ),
    # kept, saved and loaded values
    "the last weights are the best": ("best", lambda t, r: replace(r, best=t.replica.parameters())),
    "the best weights are not replaced": ("best", lambda t, r: t.kept if t.kept.best else r),
    "the lowest loss is not kept": ("best", lambda t, r: replace(r, lowest=math.inf)),
    "the best weights are kept by reference": ("best", _live),
    "the best weights are those before the last step": (
        "best",
        lambda t, r: replace(r, best=t.stale) if r is not t.kept and r.lowest != t.kept.lowest else r,
    ),
    "the best weights are rounded to float16": ("best", lambda t, r: replace(r, best=_of(r.best, _half))),
    "the best is by this rank's own loss": ("best", _own_best),
    "nothing is saved": ("saved", lambda t, r: None),
    "what is saved is of the epoch before": ("saved", lambda t, r: t.saved or r),
    "the optimizer's state is not saved": ("saved", lambda t, r: replace(r, state=_without_moments(r.state))),
    "parameters are saved in float32": ("saved", lambda t, r: replace(r, state=_of(r.state, np.float32))),
    "the number of steps is not saved": ("saved", lambda t, r: replace(r, step=0)),
    "the saved epoch is one too low": ("saved", lambda t, r: replace(r, epoch=r.epoch - 1)),
    "the best weights are not saved": ("saved", lambda t, r: replace(r, best={})),
    "the lowest loss is not saved": ("saved", lambda t, r: replace(r, lowest=math.inf)),
    "nothing is found": ("found", lambda t, r: None),
    "the optimizer's state is not loaded": ("found", lambda t, r: r and replace(r, state=_without_moments(r.state))),
    "the best so far is forgotten": ("found", lambda t, r: r and replace(r, best={}, lowest=math.inf)),
    "the number of steps is one too high": ("found", lambda t, r: r and replace(r, step=r.step + 1)),
    "an epoch is left out": ("found", lambda t, r: r and replace(r, epoch=r.epoch + 1)),
    # reported values
    "it ends with the best weights": ("told", lambda t, r: replace(r, parameters=r.best or r.parameters)),
    "the best weights that it tells are the last": (
        "told",
        lambda t, r: replace(r, best=r.best and r.parameters),
    ),
    "it tells parameters in float32": ("told", lambda t, r: replace(r, parameters=_of(r.parameters, np.float32))),
    "it tells the losses of the last epoch twice": ("told", lambda t, r: replace(r, losses=[*r.losses, r.losses[-1]])),
    "it tells indices in ascending order": (
        "told",
        lambda t, r: replace(r, indices=[sorted(one) for one in r.indices]),
    ),
    "it does not tell the last index": ("told", lambda t, r: replace(r, indices=[one[:-1] for one in r.indices])),
    "it tells one learning rate for each epoch": (
        "told",
        lambda t, r: replace(r, learning_rates=(r.learning_rates or [])[:: max(1, t.steps // t.task.epochs)]),
    ),
    "it tells the task's learning rate": (
        "told",
        lambda t, r: replace(r, learning_rates=[t.task.optimizer.lr for _ in r.learning_rates or ()]),
    ),
}
"""For each fault its place, and the change of the right value there."""


def _order(t: Trainer, epoch: int) -> list[int]:
    sampler = t.engine.make_sampler(len(t.task.inputs), shuffle=t.task.shuffle, seed=t.task.seed, drop_last=False)
    sampler.set_epoch(epoch)
    return list(sampler)
