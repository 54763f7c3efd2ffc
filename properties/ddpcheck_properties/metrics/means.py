"""Metrics: local means become the mean over all samples, on every rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Aggregate, Job, Sleep

from ..collectives.transfers import VERY_LATE
from ..drawing import for_all, for_each
from ..strategies_collectives import aggregates
from .mean_comparison import (
    by_name,
    equal,
    nothing_or_weighted,
    stays_strange,
    stays_strange_alone,
    though_late,
    weighted,
)

if TYPE_CHECKING:
    from ddpcheck.session import Session

_PATH = "/".join(f"level {number} of the tree of tasks" for number in range(12))  # longer than a byte can count
_NAMES = (
    *("loss", "accuracy", "perplexity", "f1", "rmse", "auc", "lr", "epoch", "step", "num_tokens", "max_norm", "best"),
    # with capitals, separators, blanks, and letters that Unicode can normalise
    *("mAP", "MAP", "accuracy, top 5", "loss=nll; mean", " f1 ", "µs per sample", "error in m²"),
    # that a text format or a template interprets
    *("two\nlines", "a\ttab", '50 % of "it"', "{name}", "%s", "top 5 %", "back\\slash", "it's", "1", "[0]"),
    # that an aggregator may use itself
    *("train_loss", "val_loss", "count", "n", "total", "weight", "samples", "_loss", "val", "val/loss", "val.loss"),
    "a",
    "précision",
    *(f"validation/accuracy of the {size} images in class {size}" for size in ("small", "large")),
    f"{_PATH}/first",
    f"{_PATH}/second",
    *(f"class {number}" for number in range(70)),
)


@law("metrics", needs.metrics)
def check_metrics_are_weighted_by_counts(session: Session) -> None:
    """An aggregated metric is the mean over all samples of all ranks: local means weighted by their counts, to float32
    precision. A late rank counts as any other.
    """
    world = session.world_size
    values = tuple(float(3 * rank + 1) for rank in range(world))
    uneven = (*(1,) * (world - 1), 64 - (world - 1))
    # sums that float32 still holds, and counts that half precision cannot hold
    many = (*(4099,) * (world - 1), (1 << 17) - 4099 * (world - 1))
    long = tuple(4097.0 + rank for rank in range(world))  # more digits than half precision has
    examples = [Job(world, (Aggregate(values, counts),)) for counts in (uneven, uneven[::-1], many, many[::-1])]
    examples.insert(0, Job(world, (Aggregate(values, uneven), Aggregate(values, many))))
    # counts that are nearly equal, as if one rank's last sample were missing
    alike = [(*(size,) * (world - 1), size - 1) for size in (32, 1000)]
    examples += [Job(world, (Aggregate(values, counts),)) for counts in alike]
    if world > 2:  # two ranks with equal numbers
        examples.append(Job(world, (Aggregate((1.0, *values[:-1]), (4,) * world),)))
    # fractions, with either sign
    fine = [tuple(sign / (rank + 7) for rank in range(world)) for sign in (1, -1)]
    examples += [Job(world, (Aggregate(each, counts),)) for each in (long, *fine) for counts in (uneven, (4,) * world)]
    nothing_wrong = tuple(float(rank == world - 1) for rank in range(world))  # a mean of 0 is valid
    examples.append(Job(world, (Aggregate(nothing_wrong, uneven), Aggregate((0.0,) * world, uneven))))
    most = 1 << 31 + max(2, (world - 1).bit_length())
    tokens = (*(1 << 31,) * (world - 1), most - ((world - 1) << 31))  # more than 32 bits can hold
    examples.append(Job(world, (Aggregate(values, tokens),)))
    examples += [
        Job(world, (Aggregate(tuple(scale * value for value in values), uneven),)) for scale in (2.0**-40, 2.0**60)
    ]
    whole = tuple(3 * rank + 1 for rank in range(world))  # ints, such as counts
    examples.append(Job(world, (Aggregate(whole, uneven),)))
    drawn = aggregates(world).map(lambda made: Job(world, (made,)))
    for_all(session, drawn, weighted, examples=examples, share=3)  # one check, because its Jobs are cheap
    if world == 2:  # only once, because it takes long
        for_each(session, [Job(world, (Sleep(1, VERY_LATE), *(Aggregate(values, uneven),) * 2))], though_late)


@law("metrics", needs.metrics)
def check_metrics_ignore_ranks_without_samples(session: Session) -> None:
    """A rank without samples does not change the mean, whatever value it passes, even NaN (the mean of no samples)."""
    world = session.world_size
    jobs = []
    for only in range(world):
        counts = tuple(4 * (rank == only) for rank in range(world))
        for nothing in (math.nan, 100.0, 0.0, math.inf):
            values = tuple(2.5 if rank == only else nothing for rank in range(world))
            jobs.append(Job(world, (Aggregate(values, counts), Aggregate((1.5,) * world, (2,) * world))))
    for_each(session, jobs, weighted)


@law("metrics", needs.metrics)
def check_metrics_without_samples_are_empty_or_nan(session: Session) -> None:
    """Without samples on any rank, the result is empty or NaN on every rank, and no rank fails."""
    world = session.world_size
    made = [Aggregate((value,) * world, (0,) * world) for value in (3.0, math.nan, 0.0)]
    for_each(session, [Job(world, (one, Aggregate((1.5,) * world, (2,) * world))) for one in made], nothing_or_weighted)


@law("metrics", needs.metrics)
def check_nonfinite_metrics_reach_every_rank(session: Session) -> None:
    """A NaN or infinity on any rank with samples appears on all ranks; an infinity may become NaN on all. Other metrics keep
    their values. A diverged run must not look healthy.
    """
    world = session.world_size
    jobs = []
    for strange in (math.nan, math.inf, -math.inf):
        for where in range(world):
            values = tuple(strange if rank == where else 1.0 + rank for rank in range(world))
            jobs.append(Job(world, (Aggregate(values, (2,) * world),)))
    if world > 1:  # a mean of infinities that cancel is undefined
        jobs.append(Job(world, (Aggregate((math.inf, *(-math.inf,) * (world - 1)), (2,) * world),)))
    for_each(session, jobs, stays_strange)
    values, names = tuple(float(3 * rank + 1) for rank in range(world)), ("loss", "accuracy", "perplexity")
    among = [Aggregate(values, (2,) * world, names, (where, "accuracy")) for where in range(world)]
    for_each(session, [Job(world, (one,)) for one in among], stays_strange_alone)


@law("metrics", needs.metrics)
def check_several_metrics_keep_their_names(session: Session) -> None:
    """With several metrics, or none, each result is the mean of that metric's own values, whatever its name. The caller's
    mapping does not change.

    Python's hashes of names differ between ranks, so an order that follows from them shows.
    """
    world = session.world_size
    values = tuple(float(3 * rank + 1) for rank in range(world))
    counts = (*(1,) * (world - 1), 64 - (world - 1))
    # the last call has as many metrics as the one before, with other names
    calls = _NAMES, _NAMES[::-1], (), _NAMES[:3], _NAMES[3:6]
    made = [Aggregate(values, counts, names) for names in calls]
    made.append(Aggregate((0.0, *values[1:]), counts, ("loss", "accuracy")))  # both values are equal on rank 0
    alone = tuple(Aggregate(each, counts, ("loss",)) for each in (values, values[::-1], values))
    for_each(session, [Job(world, tuple(made)), Job(world, alone)], by_name)


@law("metrics", needs.metrics, needs.metrics.metrics_by_name, needs.ranks(2))
def check_metrics_are_matched_by_name_not_order(session: Session) -> None:
    """When each rank fills its mapping in a different order, every metric is still the mean of its own values."""
    world = session.world_size
    values = tuple(float(3 * rank + 1) for rank in range(world))
    counts = (*(1,) * (world - 1), 64 - (world - 1))
    none_on_rank_0 = (0, *counts[1:-1], counts[-1] + 1)
    few, alike = ("loss", "accuracy"), tuple(f"class {number}" for number in range(8))  # two lengths; one
    cases = ((few, counts), (alike, counts), (few, none_on_rank_0), (alike + few, (4,) * world))
    for_each(session, [Job(world, (Aggregate(values, held, names, turned=True),)) for names, held in cases], by_name)


@law("metrics", needs.metrics, needs.ranks(2))
def check_metrics_are_bitwise_equal_on_all_ranks(session: Session) -> None:
    """Every rank gets the same bits, for real values too, because decisions based on a metric must not differ between ranks."""
    world = session.world_size
    jobs = []
    for first in (0.1, 1e-3, 12.7):
        values = tuple(first / (rank + 3) for rank in range(world))
        counts = tuple(range(3, 3 + world)), (7,) * world, tuple(range(4099, 4099 + world))
        jobs.append(
            Job(world, tuple(Aggregate(values[::way], held) for held, way in zip(counts, (1, -1, 1), strict=True)))
        )
    for_each(session, jobs, equal)
