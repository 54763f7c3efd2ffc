"""Start-up, memory, processor time and traffic; late ranks; and a timeline of one step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpcheck.storage.files import write_atomically

from .document import Block, Figure, Heading, Table, Text
from .figures import stacked, timeline
from .number_formatting import bars, percent, significant, with_spread
from .result_files import Entry, Measured

_SHOWN = 12


def resources(measured: Measured, plots: Path) -> Iterator[Block]:
    starts = measured.of("startup")
    if starts:
        names = [f"{e.info['adapter']}, {e.info['world_size']}" for e in starts]
        stacked(
            plots / "startup.svg",
            names,
            {"start-up": [e.seconds for e in starts]},
            "seconds until all ranks are connected",
        )
        slowest = max(starts, key=lambda e: e.seconds)
        yield Heading("Start-up")
        yield Figure(
            f"{plots.name}/startup.svg",
            f"Seconds from the launch until every rank is connected, by implementation and ranks: at most "
            f"{significant(slowest.seconds)} s ({slowest.info['adapter']}, {slowest.info['world_size']} ranks).",
            bars([(name, e.seconds) for name, e in zip(names, starts, strict=True)], "s"),
        )
        yield Table(
            ("implementation", "ranks", "start-up (s)"),
            [[e.info["adapter"], str(e.info["world_size"]), with_spread(e.data)] for e in starts],
        )
    steps = [entry for entry in measured.of("step") if entry.info["scaling"] == "weak" and not entry.info["options"]]
    if steps:
        yield from _costs(steps, plots)


def _costs(steps: list[Entry], plots: Path) -> Iterator[Block]:
    yield Heading("Memory, processor time and traffic")
    names = [f"{e.info['adapter']}, {e.info['model']}, {e.info['world_size']}" for e in steps]
    peaks = [max(e.info["peak_kib"]) / 1024 for e in steps]
    stacked(
        plots / "memory.svg", names, {"peak": peaks}, "peak of resident memory in MiB, of the rank with the highest"
    )
    most = max(zip(peaks, names, strict=True))
    yield Figure(
        f"{plots.name}/memory.svg",
        f"Peak of resident memory of a rank in MiB, by implementation, model and ranks: at most {significant(most[0])} MiB "
        f"({most[1]}).",
        bars(list(zip(names, peaks, strict=True)), "MiB"),
    )
    rows = []
    for entry, peak in zip(steps, peaks, strict=True):
        info = entry.info
        counts = info["counts"]
        cells = [info["adapter"], info["model"], str(info["world_size"]), significant(peak)]
        cells.append(significant(max(info["cpu_seconds"]) * 1e3))
        cells += [
            significant(max(rank[name] for rank in counts)) if counts and name in counts[0] else "-"
            for name in ("bytes", "messages", "collectives")
        ]
        rows.append(cells)
    yield Table(
        ("implementation", "model", "ranks", "peak (MiB)", "CPU time (ms)", "bytes sent", "messages", "collectives"),
        rows,
        "One step on the rank with the highest value, weak scaling. Traffic is counted if `counts_traffic` is promised.",
    )


def stragglers(measured: Measured) -> Iterator[Block]:
    """Points with large differences between ranks, or between iterations."""
    entries = [e for e in measured.entries if len(e.info.get("ranks", ())) > 1 and not e.crowded]
    if not entries:
        return
    worst = sorted(entries, key=lambda e: -e.info["worst"] / e.seconds)[:_SHOWN]
    yield Heading("Stragglers")
    spiky = sum(e.info["spikes"] > 0 for e in entries)
    yield Text(
        f"In {spiky} of {len(entries)} points with several ranks there were iterations that took more than 1.5 x the "
        f"median of their launch. The {len(worst)} with the longest such iterations (all ranks' times are in the archive beside "
        "the result file):"
    )
    rows = []
    for entry in worst:
        info = entry.info
        medians = [rank["median"] for rank in info["ranks"]]
        late = max(range(len(medians)), key=lambda rank: info["ranks"][rank]["slowest"])
        rows.append(
            [
                f"`{entry.name}`",
                significant(entry.seconds * 1e3),
                significant(info["worst"] * 1e3),
                f"{info['spikes']} of {info['samples']}",
                f"rank {late} ({percent(info['ranks'][late]['slowest'])})",
                significant(max(medians) / min(medians)),
            ]
        )
    yield Table(("point", "median (ms)", "worst (ms)", "spikes", "most often last", "slowest / fastest rank"), rows)


def timelines(measured: Measured, plots: Path) -> Iterator[Block]:
    """One step of each implementation at its largest world size with a core for each rank, with a file for Perfetto."""
    chosen: dict[str, Entry] = {}
    for entry in measured.of("step"):
        if (
            not entry.info["options"]
            and not entry.crowded
            and entry.info["scaling"] == "weak"
            and entry.info.get("timeline")
        ):
            chosen[entry.info["adapter"]] = entry  # ascending by parameters and ranks, so the largest is kept
    if not chosen:
        return
    yield Heading("Timeline of one step")
    yield Text(
        "The last measured step, rank by rank. If an implementation promises `timeline`, the bars show when backward "
        "computed and when each bucket was reduced; else forward and backward are one bar, communication included. The "
        "`.json` files open in <https://ui.perfetto.dev>."
    )
    for adapter, entry in sorted(chosen.items()):
        ranks: list[list[Any]] = entry.info["timeline"]
        stem = f"timeline-{adapter}"
        what = f"{adapter}, {entry.info['model']}, {entry.info['world_size']} rank{'s' * (len(ranks) > 1)}"
        timeline(plots / f"{stem}.svg", [[(n, b, e) for n, b, e in spans] for spans in ranks], what)
        write_atomically(plots / f"{stem}.json", json.dumps(trace_events(ranks), indent=1) + "\n")
        last = max(end for spans in ranks for _, _, end in spans)
        twin = "\n".join(
            f"rank {rank}  {name:<22} {begin * 1e3:9.3f} to {end * 1e3:9.3f} ms"
            for rank, spans in enumerate(ranks)
            for name, begin, end in spans
        )
        yield Figure(f"{plots.name}/{stem}.svg", f"One step of {what}: it takes {significant(last * 1e3)} ms.", twin)
        yield Text(f"[{stem}.json]({plots.name}/{stem}.json)")


def trace_events(ranks: list[list[Any]]) -> dict[str, Any]:
    """Chrome's trace format: a process for each rank, a thread for computing and one for communicating; µs."""
    events: list[dict[str, Any]] = []
    for rank, spans in enumerate(ranks):
        events.append({"name": "process_name", "ph": "M", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        for lane, title in enumerate(("compute", "communicate")):
            events.append({"name": "thread_name", "ph": "M", "pid": rank, "tid": lane, "args": {"name": title}})
        for name, begin, end in spans:
            lane = int(name.startswith("all_reduce"))
            times = {"ts": round(begin * 1e6, 3), "dur": round((end - begin) * 1e6, 3)}
            events.append({"name": name, "ph": "X", "pid": rank, "tid": lane, "cat": "step", **times})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
