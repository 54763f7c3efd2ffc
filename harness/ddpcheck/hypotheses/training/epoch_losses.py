"""Hypotheses about the loss that a training run reports for an epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...causes import Cause
from ...causes.training import epoch_losses as causes
from ...oracle.training_runs import Run
from ...seeded_values import Array
from ..arrays import Evidence
from .emulation import can_emulate, emulate, loss_with

Windows = Sequence[Sequence[tuple[Array, Array]]]
"""An epoch's windows of micro-batches, each with the losses and counts of the ranks."""


def of_epoch_loss(run: Run, epoch: int, rank: int, got: float) -> Evidence:
    """The loss of an epoch on a rank for each cause.

    Numbers come as Python floats, and were computed in the model's dtype: 1e-5 is close enough.
    """
    if not can_emulate(run):
        return Evidence(precision=False)
    emulated = emulate(run)
    epochs = emulated.losses[: epoch + 1]
    mean = _mean(epochs[-1])
    known = _by_other_means(run, epochs[-1], rank, mean)
    if mean and abs(got / mean - 1) < 2.0**-9 and float(np.float16(got)) == got:
        known.append((causes.EPOCH_LOSS_IN_FLOAT16(), got))
    known.append((causes.EPOCH_LOSS_OF_EVALUATION(), _mean([[loss_with(run, epoch, emulated.ends[epoch])]])))
    known += _of_other_epochs_or_ranks(epochs) + _by_running_sums(epochs[-1])
    alternatives = tuple(
        (cause, np.asarray(got if math.isclose(got, value, rel_tol=1e-5) else value))
        for cause, value in known
        if not math.isclose(value, mean, rel_tol=1e-5)
    )
    return Evidence(alternatives=alternatives, precision=False)


def _by_other_means(run: Run, windows: Windows, rank: int, mean: float) -> list[tuple[Cause, float]]:
    """An epoch's loss by other averages than `mean`, the mean over all samples."""
    micro = [one for window in windows for one in window]
    counts, ranks = sum(count.sum() for _, count in micro), len(micro[0][1])
    sizes = [np.sum([count for _, count in window], axis=0) for window in windows]

    def over(values: Sequence[Array]) -> float:
        """The mean of one number per window and rank."""
        return float(sum(value @ size for value, size in zip(values, sizes, strict=True)) / counts)

    summed = over([np.sum([loss for loss, _ in window], axis=0) for window in windows])
    as_full = sum(loss.sum() for loss, _ in micro) * run.plan.batch_size / counts
    at_end = sum((loss * count).sum() for loss, count in windows[-1]) / max(1.0, sizes[-1].sum())
    known = [
        (causes.EPOCH_LOSS_SUMMED_OVER_WINDOW(), summed),
        (causes.EPOCH_LOSS_OF_LAST_MICRO_BATCH(), over([window[-1][0] for window in windows])),
        (causes.EPOCH_LOSS_OF_LAST_STEP(), float(at_end)),
        (causes.EPOCH_LOSS_NOT_AGGREGATED(), float(own_losses(windows)[rank])),
        (causes.EPOCH_LOSS_OWN_LAST_STEP(), float(own_losses(windows[-1:])[rank])),
        (causes.EPOCH_LOSS_OF_BATCHES(), float(np.mean([loss.mean() for loss, _ in micro]))),
        (causes.EPOCH_LOSS_SUMMED_OVER_RANKS(world_size=ranks), mean * ranks),
        (causes.EPOCH_LOSS_SHORT_AS_FULL(), float(as_full)),
    ]
    added, count = (np.sum([part[at] for part in micro], axis=0) for at in (0, 1))
    by_samples = [float(added.sum() / counts)]
    if max(map(np.max, (count for _, count in micro))) > 1:  # with one sample a batch, that is the rank's own mean
        by_samples.append(float(added[rank] / max(1.0, count[rank])))
    known += [(causes.EPOCH_LOSS_DIVIDED_BY_SAMPLES(), value) for value in by_samples]
    full = [window for window in windows if len(window) == run.plan.micro_batches]
    if full and len(full) < len(windows):
        known.append((causes.EPOCH_LOSS_WITHOUT_SHORT_WINDOW(), _mean(full)))
    return known


def _of_other_epochs_or_ranks(epochs: Sequence[Windows]) -> list[tuple[Cause, float]]:
    """The loss of the last of these epochs with earlier ones included, or without a rank."""
    known: list[tuple[Cause, float]] = []
    if len(epochs) > 1:
        known.append((causes.EPOCH_LOSS_OF_ALL_EPOCHS(), _mean([window for windows in epochs for window in windows])))
    counts, sums = _counts_and_sums(epochs[-1])
    for rank in range(len(sums)) if len(sums) > 2 else ():
        others = np.arange(len(sums)) != rank
        mean = float(sums[others].sum() / max(1.0, counts[others].sum()))
        known.append((causes.EPOCH_LOSS_WITHOUT_RANK(rank=rank), mean))
    return known


def _by_running_sums(windows: Windows) -> list[tuple[Cause, float]]:
    """An epoch's loss if ranks share their running sums before its end."""
    micro = [np.array([loss * count, count]) for window in windows for loss, count in window]
    ranks = micro[0].shape[1]
    again = np.zeros(2)
    for window in windows:
        again = ranks * again + np.sum([(loss @ count, count.sum()) for loss, count in window], axis=0)
    first = ranks * np.sum([part[:, 0] for part in micro[:-1]], axis=0) + micro[-1].sum(axis=1)
    return [
        (causes.EPOCH_LOSS_OVERWRITTEN(), float(first[0] / max(1.0, first[1]))),
        (causes.EPOCH_LOSS_SUMS_REDUCED_AGAIN(), float(again[0] / max(1.0, again[1]))),
    ]


def _counts_and_sums(windows: Windows) -> tuple[Array, Array]:
    """Samples of each rank, and the sums of their losses."""
    counts = np.sum([count for window in windows for _, count in window], axis=0)
    sums = np.sum([loss * count for window in windows for loss, count in window], axis=0)
    return counts, sums


def _mean(windows: Windows) -> float:
    """The mean loss over the samples of all ranks."""
    counts, sums = _counts_and_sums(windows)
    return float(sums.sum() / counts.sum())


def own_losses(windows: Windows) -> Array:
    """Each rank's mean loss over its own samples in an epoch."""
    counts, sums = _counts_and_sums(windows)
    return np.asarray(sums / np.maximum(counts, 1))
