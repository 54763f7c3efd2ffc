"""Noise: the difference between equal code in this run, and so the smallest change that the run could find."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, stdev

from ddpcheck.counted_nouns import counted

from .document import Block, Figure, Heading, Table, Text
from .figures import ecdf
from .number_formatting import grid, percent, significant
from .result_files import Entry, Measured, distinct

_POWER = 1.96 + 0.84  # found by a two-sided test at 5 %, in 80 % of all runs
_MEDIAN = 1.2533  # the error of a median over that of a mean
_METHOD = (
    "A/A compares the run with itself: the median of the launches with odd numbers over that of those with even numbers, point "
    "by point, in brackets where the middle 95 % of points lie. Equal code should give 1, and two implementations whose ratio is "
    "within the brackets are not told apart. The smallest effect is the difference between two implementations at one point "
    "that a two-sided test at 5 % would find in 80 % of such runs: exp(2.8 x 1.25 x s x sqrt(2 / launches)) - 1, with s the "
    "standard deviation of the logarithms of launches, its median over points. In queue is the share of its time in which the "
    "rank that waited longest could run, but had no core. For smaller differences there is `ddpcheck gate`."
)


def noise(measured: Measured, plots: Path) -> Iterator[Block]:
    entries = [e for e in measured.entries if len(e.data) > 1 and e.info["kind"] != "startup"]
    if entries:
        yield Heading("Noise")
        yield Text(_METHOD)
        yield Table(
            ("what", "points", "launches", "A/A ratio", "smallest effect", "CV within a launch", "launches differ by, worst",
             "in queue"),
            list(_rows(entries)),
        )  # fmt: skip
        yield from _tails(measured, plots)
        yield from _loads(measured)


def _rows(entries: Sequence[Entry]) -> Iterator[list[str]]:
    for kind in distinct(entries, lambda e: e.info["kind"]):
        for what, chosen in (
            ("", [e for e in entries if not e.crowded and not e.linked]),
            (", oversubscribed", [e for e in entries if e.crowded]),
            (", emulated hosts", [e for e in entries if e.linked]),
        ):
            own = [e for e in chosen if e.info["kind"] == kind]
            if own:
                fewest, most = min(len(e.data) for e in own), max(len(e.data) for e in own)
                shares = [e.info["queue_share"] for e in own if e.info.get("queue_share") is not None]
                yield [
                    f"{kind}{what}",
                    str(len(own)),
                    str(most) if fewest == most else f"{fewest} to {most}",
                    against_itself(own),
                    percent(median(map(smallest_effect, own))),
                    percent(median(e.info["cv"] for e in own)),
                    percent(max(max(e.data) / min(e.data) - 1 for e in own)),
                    f"{percent(median(shares))}, worst {percent(max(shares))}" if shares else "-",
                ]


def against_itself(entries: Sequence[Entry]) -> str:
    """The median over points of odd launches over even launches, and the middle 95 % of points."""
    ratios = sorted(median(e.data[::2]) / median(e.data[1::2]) for e in entries)
    cut = int(0.025 * len(ratios))
    return f"{median(ratios):.3f} [{ratios[cut]:.2f}, {ratios[-1 - cut]:.2f}]"


def smallest_effect(entry: Entry) -> float:
    """The smallest relative difference that would be found between two points as noisy as this one."""
    return math.exp(_POWER * _MEDIAN * stdev(map(math.log, entry.data)) * math.sqrt(2 / len(entry.data))) - 1


def _tails(measured: Measured, plots: Path) -> Iterator[Block]:
    """The distribution of step times: the largest model with a core for every rank, weak scaling."""
    steps = [e for e in measured.of("step") if e.info["scaling"] == "weak" and not e.info["options"] and not e.crowded]
    steps = [e for e in steps if e.name in measured.samples]
    if not steps:
        return
    model = max(steps, key=lambda e: int(e.info["parameters"])).info["model"]
    panels: dict[str, dict[str, Sequence[float]]] = {}
    rows = []
    for entry in (e for e in steps if e.info["model"] == model):
        ranks, adapter = entry.info["world_size"], entry.info["adapter"]
        times = sorted(1e3 * seconds for seconds in measured.samples[entry.name])
        panels.setdefault(counted(ranks, "rank"), {})[adapter] = times
        places = [times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.95, 0.99)]
        rows.append([f"{adapter}, {ranks}", str(len(times)), *map(significant, (*places, times[-1], fmean(times)))])
    ecdf(plots / "step-distribution.svg", panels, "step (ms)")
    tail = max(rows, key=lambda row: float(row[4]) / float(row[2]))
    yield Figure(
        f"{plots.name}/step-distribution.svg",
        f"Share of the steps of {model} that took at most so long (slowest rank of each step, all launches), by ranks: the "
        f"longest tail is that of {tail[0]} ranks, p99 {tail[4]} ms beside a median of {tail[2]} ms.",
        grid(["ms", "steps", "p50", "p95", "p99", "worst", "mean"], rows),
    )


def _loads(measured: Measured) -> Iterator[Block]:
    loads = [
        [str(i), f"{run['load']['seconds']:.0f}", _numbers(run["load"]["loadavg_before"]), _numbers(run["load"]["loadavg_after"]),
         significant(run["load"]["steal_seconds"]), significant(run["load"]["waited_seconds"])]
        for i, run in enumerate(measured.runs, start=1)
    ]  # fmt: skip
    names = (
        "run",
        "seconds",
        "load before (1, 5, 15 min)",
        "load after",
        "steal (s)",
        "something waited for a core (s)",
    )
    yield Table(names, loads)


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
