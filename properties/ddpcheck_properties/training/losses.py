"""The loss that a training run tells of each epoch, and what else it might be the mean of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ddpcheck import expect
from ddpcheck.diagnosis import Evidence
from ddpcheck.job import Backward
from ddpcheck.numerics import gamma
from ddpcheck.oracle import ExpectedOperation
from ddpcheck.values import Array

from .drawn_runs import Run
from .emulated import can_emulate, emulate
from .ends import elsewhere, unexplained

Windows = Sequence[Sequence[tuple[Array, Array]]]
"""An epoch's windows of micro-batches, of each the losses and counts of the ranks."""

_OVERWRITTEN = "its sums are overwritten with rank 0's in every forward pass, as buffers are: the other ranks' are lost"
_ADDED_AGAIN = "its running sums are summed over the ranks in every step, those of the steps before once more"


def tells_the_loss(run: Run) -> None:
    """The mean over the samples of all ranks, of each epoch, on every rank."""
    for epoch, moments in enumerate(run.moments[run.first :], start=run.first):
        mean, bound = _loss(run, moments)
        for rank, losses in enumerate(run.losses):
            got = losses[epoch - run.first]
            known = partial(_losses_gone_wrong, run, epoch, rank, got)
            with unexplained(lambda: elsewhere(run)):
                expect.within(np.float64(got), mean, bound, f"loss of epoch {epoch}", rank, known)


def _loss(run: Run, moments: Sequence[ExpectedOperation]) -> tuple[Array, Array]:
    """The mean loss over an epoch's samples, and its bound."""
    job = run.job
    assert job.model is not None
    total = allowed = count = 0.0
    steps = [moment for moment in moments if isinstance(moment.operation, Backward)]
    for moment in steps:
        assert isinstance(moment.operation, Backward)
        counts = np.array([len(rank) for rank in moment.operation.samples])
        loss = moment.numbers["loss"]
        total += float(loss.exact @ counts)
        allowed += float((np.zeros(job.world_size) if loss.error is None else loss.error) @ counts)
        count += float(counts.sum())
    mean = np.asarray(total / count)
    roundings = 2 * len(steps) * run.plan.micro_batches * job.world_size + 8
    dtype = "float32" if job.model.dtype == "float64" else job.model.dtype  # of metrics no more is asked
    return mean, np.asarray(allowed / count + abs(mean) * gamma(roundings, dtype))


def _losses_gone_wrong(run: Run, epoch: int, rank: int, got: float) -> Evidence:
    """What the loss of an epoch would be on a rank.

    Numbers come as Python floats, and were computed in the model's dtype: 1e-5 is near enough.
    """
    if not can_emulate(run):
        return Evidence(precision=False)
    emulated = emulate(run).losses
    windows = emulated[epoch]
    micro = [one for window in windows for one in window]
    counts = np.sum([count for _, count in micro], axis=0)
    own = own_losses(windows)
    sizes = [np.sum([count for _, count in window], axis=0) for window in windows]
    mean = float(own @ counts / counts.sum())

    def over(values: Sequence[Array]) -> float:
        """The mean of one number for each window and rank."""
        return float(sum(value @ size for value, size in zip(values, sizes, strict=True)) / counts.sum())

    added = over([np.sum([loss for loss, _ in window], axis=0) for window in windows])
    last = over([window[-1][0] for window in windows])
    at_end = [(loss * count).sum() for loss, count in windows[-1]]
    known = [
        ("the losses of the micro-batches are added up, and not averaged over the window", added),
        ("the loss of each window is that of its last micro-batch only", last),
        ("it is the loss of the epoch's last step only", float(sum(at_end) / max(1.0, sizes[-1].sum()))),
        ("it is this rank's own mean, not that of all ranks", float(own[rank])),
        ("it is this rank's own loss in the epoch's last step", _own_at_end(windows, rank)),
        ("it is the mean over batches, whatever their sizes", float(np.mean([loss.mean() for loss, _ in micro]))),
        (
            f"it is {len(counts)} x too large: losses are summed over the ranks, perhaps in place by what logs them",
            mean * len(counts),
        ),
    ]
    as_full = sum(loss.sum() for loss, _ in micro) * run.plan.batch_size / counts.sum()
    known.append(
        ("a batch of fewer samples than others counts as a full one: its loss times batch_size", float(as_full))
    )
    if mean and abs(got / mean - 1) < 2.0**-9 and float(np.float16(got)) == got:
        known.append(("it has no more bits than float16: it is held, or was summed, in that", got))
    known += _losses_of_others(emulated[: epoch + 1]) + _losses_of_running_sums(windows)
    full = [size for size, window in zip(sizes, windows, strict=True) if len(window) == run.plan.micro_batches]
    if full and len(full) < len(sizes):
        values = [np.sum([loss * count for loss, count in window], axis=0).sum() for window in windows[: len(full)]]
        sentence = "the short last window of an epoch is left out of it"
        known.append((sentence, float(sum(values) / np.sum(full))))
    alternatives = tuple(
        (sentence, np.asarray(got if math.isclose(got, value, rel_tol=1e-5) else value))
        for sentence, value in known
        if not math.isclose(value, mean, rel_tol=1e-5)
    )
    return Evidence(alternatives=alternatives, precision=False)


def _own_at_end(windows: Windows, rank: int) -> float:
    """A rank's mean loss in the last window."""
    return float(own_losses(windows[-1:])[rank])


def _losses_of_others(emulated: Sequence[Windows]) -> list[tuple[str, float]]:
    """What the loss of the last of these epochs would be with others in it, or without a rank, in words."""
    counts = [np.sum([count for window in windows for _, count in window], axis=0) for windows in emulated]
    sums = [np.sum([loss * count for window in windows for loss, count in window], axis=0) for windows in emulated]
    known = []
    if len(sums) > 1:
        sentence = "it is the mean of all epochs so far: its sums are not reset"
        known.append((sentence, float(np.sum(sums) / np.sum(counts))))
    for rank in range(len(sums[-1])) if len(sums[-1]) > 2 else ():
        others = np.arange(len(sums[-1])) != rank
        mean = float(sums[-1][others].sum() / max(1.0, counts[-1][others].sum()))
        known.append((f"it is the mean of the other ranks: the part of rank {rank} is missing", mean))
    return known


def _losses_of_running_sums(windows: Windows) -> list[tuple[str, float]]:
    """What an epoch's loss would be if ranks shared their running sums before its end."""
    micro = [np.array([loss * count, count]) for window in windows for loss, count in window]
    ranks = micro[0].shape[1]
    again = np.zeros(2)
    for window in windows:
        again = ranks * again + np.sum([(loss @ count, count.sum()) for loss, count in window], axis=0)
    first = ranks * np.sum([part[:, 0] for part in micro[:-1]], axis=0) + micro[-1].sum(axis=1)
    return [(_OVERWRITTEN, float(first[0] / max(1.0, first[1]))), (_ADDED_AGAIN, float(again[0] / max(1.0, again[1])))]


def own_losses(windows: Windows) -> Array:
    """Each rank's mean loss over its own samples in an epoch."""
    counts = np.sum([count for window in windows for _, count in window], axis=0)
    sums = np.sum([loss * count for window in windows for loss, count in window], axis=0)
    return np.asarray(sums / np.maximum(counts, 1))
