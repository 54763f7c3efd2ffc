"""Training steps: absolute times first, then efficiency, the parts of a step, and the size of buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .document import Block, Figure, Heading, Table, Text
from .figures import lines, stacked
from .number_formatting import bars, grid, percent, share_with_spread, significant, with_spread
from .result_files import Entry, Measured, distinct

_METHOD = (
    "A step is zero_grad, forward and backward with its communication, and the optimizer's update; its time is that of the "
    "slowest rank. Weak scaling keeps the batch of each rank, strong scaling the batch of all ranks together. Both "
    "efficiencies have the same implementation at one rank as their base: T(1) / T(N) for weak scaling, T(1) / (N T(N)) for "
    "strong. Their brackets hold the least and the largest ratio of ends of both times' intervals. The second base is the "
    "same step in no_sync() on as many ranks, in the same processes: exposed = T(N) - T_compute(N). hidden = 1 - exposed / "
    "(time of one all_reduce of as many bytes), kept within 0 and 1."
)
_NAMES = (
    "implementation",
    "ranks",
    "batch",
    "step (ms)",
    "p95 (ms)",
    "samples/s",
    "efficiency",
    "exposed (ms)",
    "hidden",
)


def steps(measured: Measured, plots: Path) -> Iterator[Block]:
    entries = [entry for entry in measured.of("step") if not entry.info["options"]]
    if not entries:
        return
    yield Heading("Training steps")
    yield Text(_METHOD)
    for model in dict.fromkeys(entry.info["model"] for entry in entries):
        own = [entry for entry in entries if entry.info["model"] == model]
        millions = own[0].info["parameters"] / 1e6
        yield Heading(f"{model}: {significant(millions)} million parameters", 3)
        for scaling in ("weak", "strong"):
            rows = [entry for entry in own if scaling in (entry.info["scaling"], "strong" if alone(entry) else "")]
            rows = [entry for entry in rows if not entry.crowded]
            if len({entry.info["world_size"] for entry in rows}) > 1:
                fixed = "batch of each rank" if scaling == "weak" else "batch of all ranks together"
                yield Table(
                    _NAMES, [_row(entry, own, scaling) for entry in rows], f"{scaling} scaling: the {fixed} is constant"
                )
        crowded = [entry for entry in own if entry.crowded]
        if crowded:
            yield Table(
                ("implementation", "ranks", "scaling", "batch", "step (ms)", "CPU time of a rank (ms)"),
                [_crowded_row(entry) for entry in crowded],
                f"functional, oversubscribed (more ranks than the {crowded[0].info['cores']} cores): efficiency is unknown",
            )
        yield from _breakdown(own, model, plots)
    yield from _efficiency(entries, plots)


def alone(entry: Entry) -> bool:
    return bool(entry.info["world_size"] == 1)


def efficiency(entry: Entry, entries: Sequence[Entry], scaling: str) -> float | None:
    """T(1) / T(N), divided by N for strong scaling; None without a base, and if ranks share cores."""
    base = _base(entry, entries)
    return None if base is None else base.seconds / entry.seconds / _divisor(entry, scaling)


def shown_efficiency(entry: Entry, entries: Sequence[Entry], scaling: str) -> str:
    """The efficiency with its spread; - if it is unknown. One rank is its own base, and has no spread."""
    base = _base(entry, entries)
    if base is None or base is entry:
        return percent(efficiency(entry, entries, scaling))
    return share_with_spread(base.data, entry.data, 1 / _divisor(entry, scaling))


def _base(entry: Entry, entries: Sequence[Entry]) -> Entry | None:
    """The same steps at one rank; None if there are none, or if the entry's ranks share cores."""
    same = [e for e in entries if alone(e) and all(e.info[key] == entry.info[key] for key in ("adapter", "model"))]
    return same[0] if same and not entry.crowded else None


def _divisor(entry: Entry, scaling: str) -> int:
    return int(entry.info["world_size"]) if scaling == "strong" else 1


def _row(entry: Entry, own: Sequence[Entry], scaling: str) -> list[str]:
    info, parts = entry.info, entry.info["parts"]
    return [
        info["adapter"],
        str(info["world_size"]),
        str(info["batch"]),
        with_spread(entry.data, 1e3),
        significant(info["p95"] * 1e3),
        significant(info["global_batch"] / entry.seconds),
        shown_efficiency(entry, own, scaling),
        significant(_milli(parts["exposed"])),
        percent(parts["hidden"]),
    ]


def _crowded_row(entry: Entry) -> list[str]:
    info = entry.info
    cpu = max(info["cpu_seconds"]) * 1e3
    return [
        info["adapter"],
        str(info["world_size"]),
        info["scaling"],
        str(info["batch"]),
        with_spread(entry.data, 1e3),
        significant(cpu),
    ]


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _breakdown(own: Sequence[Entry], model: str, plots: Path) -> Iterator[Block]:
    rows = [e for e in own if e.info["scaling"] == "weak" and not e.crowded and e.info["parts"]["compute"] is not None]
    if not rows:
        return
    names = [f"{e.info['adapter']}, {e.info['world_size']}" for e in rows]
    parts = {
        "forward and backward": [(e.info["parts"]["compute"] - e.info["parts"]["optimizer"]) * 1e3 for e in rows],
        "exposed communication": [max(0.0, e.info["parts"]["exposed"]) * 1e3 for e in rows],
        "optimizer": [e.info["parts"]["optimizer"] * 1e3 for e in rows],
    }
    stacked(plots / f"step-{model}.svg", names, parts, "ms of one step")
    table = [[name, *(significant(values[i]) for values in parts.values())] for i, name in enumerate(names)]
    most = max(rows, key=lambda e: float(e.info["parts"]["exposed"]) / e.seconds)
    share = max(0.0, most.info["parts"]["exposed"] / most.seconds)
    yield Figure(
        f"{plots.name}/step-{model}.svg",
        f"Parts of a step of {model}, by implementation and ranks (weak scaling): at most {percent(share)} of a step is "
        f"exposed communication ({most.info['adapter']}, {most.info['world_size']} ranks).",
        grid(["ms", *parts], table),
    )


def _efficiency(entries: Sequence[Entry], plots: Path) -> Iterator[Block]:
    panels: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    rows = []
    shown = {}
    for entry in entries:
        found = efficiency(entry, entries, entry.info["scaling"])
        if found is None or entry.info["scaling"] != "weak":
            continue
        spread = [found * entry.seconds / value for value in entry.data]
        points = panels.setdefault(entry.info["model"], {}).setdefault(entry.info["adapter"], [])
        points.append((entry.info["world_size"], found, min(spread), max(spread)))
        label = f"{entry.info['model']}, {entry.info['adapter']}, {entry.info['world_size']}"
        rows.append((label, found))
        shown[label] = shown_efficiency(entry, entries, "weak")
    ranks = distinct(entries, lambda entry: entry.info["world_size"])
    ranks = [n for n in ranks if n <= entries[0].info["cores"]]
    if len(ranks) < 2 or not rows:
        return
    top = max(point[3] for panel in panels.values() for points in panel.values() for point in points)
    axes: dict[str, Any] = {
        "x": "ranks", "y": "weak-scaling efficiency", "x_base": 2, "x_ticks": (ranks, [str(n) for n in ranks]),
        "ideal": 1.0, "y_top": max(1.1, 1.05 * top),
        "edge": (entries[0].info["cores"], "cores"),
    }  # fmt: skip
    lines(plots / "efficiency.svg", panels, axes)
    worst = min(rows, key=lambda row: row[1])
    yield Heading("Efficiency", 3)
    yield Figure(
        f"{plots.name}/efficiency.svg",
        f"Weak-scaling efficiency over ranks, up to the cores of this machine; the dashed line is ideal. Lowest: {worst[0]} "
        f"ranks, {shown[worst[0]]}.",
        bars(rows, ""),
    )


def buckets(measured: Measured, plots: Path) -> Iterator[Block]:
    """Step time over bucket_cap_mb, for implementations with that option."""
    swept = [entry for entry in measured.of("step") if "bucket_cap_mb" in entry.info["options"]]
    if not swept:
        return
    yield Heading("Bucket size")
    rows = []
    curves: dict[str, list[tuple[float, float, float, float]]] = {}
    for entry in sorted(
        swept, key=lambda e: (e.info["adapter"], e.info["world_size"], e.info["options"]["bucket_cap_mb"])
    ):
        cap = float(entry.info["options"]["bucket_cap_mb"])
        label = f"{entry.info['adapter']}, {entry.info['world_size']} ranks"
        curves.setdefault(label, []).append((cap, entry.seconds * 1e3, min(entry.data) * 1e3, max(entry.data) * 1e3))
        cells = [label, f"{cap:g}", with_spread(entry.data, 1e3), significant(_milli(entry.info["parts"]["exposed"]))]
        rows.append([*cells, percent(entry.info["parts"]["hidden"])])
    model = swept[0].info["model"]
    caps = sorted({point[0] for points in curves.values() for point in points})
    axes: dict[str, Any] = {
        "x": "bucket_cap_mb (MB)",
        "y": "step (ms)",
        "x_base": 10,
        "x_ticks": (caps, [f"{c:g}" for c in caps]),
    }
    axes |= {"edge": (25.0, "torch's default")} if 25.0 in caps else {}
    lines(plots / "buckets.svg", {f"{model}, weak scaling": curves}, axes)
    best = min(((p[1], p[0], label) for label, points in curves.items() for p in points))
    yield Figure(
        f"{plots.name}/buckets.svg",
        f"Step time of {model} over the size of buckets: the shortest, {significant(best[0])} ms, is with {best[1]:g} MB "
        f"({best[2]}).",
        bars([(f"{label}, {p[0]:g} MB", p[1]) for label, points in curves.items() for p in points], "ms"),
    )
    yield Table(("implementation", "bucket (MB)", "step (ms)", "exposed (ms)", "hidden"), rows)
