"""Training steps between emulated hosts: the effect of overlap on a link that is slower than memory, and scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .document import Block, Figure, Heading, Table, Text
from .figures import lines
from .number_formatting import bars, percent, share_with_spread, significant, with_spread
from .result_files import Entry, Measured, distinct

_METHOD = (
    "Each rank, or group of ranks, runs on a host of its own: a network namespace with one link of the given rate, "
    "shaped in both directions by a token bucket. The rate is realistic, the latency is not: the kernel adds no "
    "delay. Compute is emulated by waiting, layer by layer, as for an accelerator that does not use the host's "
    "cores, so that ranks do not compete for the cores of this machine if `cores busy` is well below 100 %: this is "
    "the processor time of all ranks over the time of all cores. Hidden is (all_reduce alone - exposed) over the "
    "smaller of backward and the all_reduce of all gradients at once, which is the most that can be hidden. Wire is "
    "the number of bytes that the interface of a host sends for one step, by its own counter."
)
_BUSY = 0.8


def hosts(measured: Measured, plots: Path) -> Iterator[Block]:
    steps, collectives = measured.of("step", linked=True), measured.of("collective", linked=True)
    if not steps and not collectives:
        return
    yield Heading("Emulated hosts and accelerators")
    yield Text(_METHOD)
    for link in distinct(steps, lambda e: e.info["link"]):
        own = [e for e in steps if e.info["link"] == link]
        yield Heading(f"Steps, {link}", 3)
        yield Text(_told(own))
        yield from _figure(own, link, plots)
        yield Table(
            ("implementation", "ranks", "step (ms)", "exposed (ms)", "all_reduce alone (ms)", "hidden", "efficiency",
             "wire (MB)", "cores busy"),
            [_row(entry, own) for entry in own],
        )  # fmt: skip
    if collectives:
        yield Heading("all_reduce between hosts", 3)
        yield Table(
            ("implementation", "link", "ranks", "size (B)", "time (ms)", "busbw (Gbit/s)", "#wrong"),
            [_collective(entry) for entry in collectives if entry.info["world_size"] > 1],
        )


def _told(steps: Sequence[Entry]) -> str:
    forward, backward = steps[0].info["delays"]
    return (
        f"{significant(steps[0].info['parameters'] / 1e6)} million parameters, {significant(forward * 1e3)} ms of "
        f"waiting forward and {significant(backward * 1e3)} ms backward."
    )


def _label(entry: Entry) -> str:
    options = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
               for name, value in entry.info["options"].items()]  # fmt: skip
    return ", ".join([str(entry.info["adapter"]), *options])


def _efficiency(entry: Entry, own: Sequence[Entry]) -> float | None:
    base = _base(entry, own)
    return base.seconds / entry.seconds if base else None


def _shown_efficiency(entry: Entry, own: Sequence[Entry]) -> str:
    """The efficiency with its spread. One rank is its own base, and has no spread."""
    base = _base(entry, own)
    if base is None or base is entry:
        return percent(_efficiency(entry, own))
    return share_with_spread(base.data, entry.data)


def _base(entry: Entry, own: Sequence[Entry]) -> Entry | None:
    return next((e for e in own if e.info["adapter"] == entry.info["adapter"] and e.info["world_size"] == 1), None)


def _busy(entry: Entry) -> float:
    info = entry.info
    return float(sum(info["cpu_seconds"]) / (entry.seconds * info["cores"]))


def _row(entry: Entry, own: Sequence[Entry]) -> list[str]:
    parts, wire = entry.info["parts"], entry.info.get("wire_bytes")
    busy = _busy(entry)
    return [
        _label(entry),
        str(entry.info["world_size"]),
        with_spread(entry.data, 1e3),
        *(significant(None if parts[name] is None else parts[name] * 1e3) for name in ("exposed", "comm_alone")),
        percent(parts["of_possible"]),
        _shown_efficiency(entry, own),
        significant(max(wire) / 1e6) if wire and entry.info["world_size"] > 1 else "-",
        f"{percent(busy)}{' (too many)' * (busy > _BUSY)}",
    ]


def _figure(own: Sequence[Entry], link: str, plots: Path) -> Iterator[Block]:
    curves: dict[str, list[tuple[float, float, float, float]]] = {}
    for entry in sorted(own, key=lambda e: (_label(e), e.info["world_size"])):
        found = _efficiency(entry, own)
        if found is not None and entry.info["world_size"] > 1:
            spread = [found * entry.seconds / value for value in entry.data]
            points = curves.setdefault(_label(entry), [(1.0, 1.0, 1.0, 1.0)])
            points.append((entry.info["world_size"], found, min(spread), max(spread)))
    if not curves:
        return
    ranks = sorted({int(point[0]) for points in curves.values() for point in points})
    axes: dict[str, Any] = {
        "x": "ranks", "y": "weak-scaling efficiency", "x_base": 2, "x_ticks": (ranks, [str(n) for n in ranks]),
        "ideal": 1.0, "y_top": max(1.1, *(point[3] for points in curves.values() for point in points)),
    }  # fmt: skip
    file = f"hosts-{''.join(c if c.isalnum() else '-' for c in link)}.svg"
    lines(plots / file, {f"links of {link}": curves}, axes)
    last = [(label, points[-1]) for label, points in curves.items()]
    best, worst = max(last, key=lambda item: item[1][1]), min(last, key=lambda item: item[1][1])
    yield Figure(
        f"{plots.name}/{file}",
        f"Weak-scaling efficiency over ranks on emulated hosts, links of {link}: at {best[1][0]:g} ranks "
        f"{percent(best[1][1])} with {best[0]}, {percent(worst[1][1])} with {worst[0]}.",
        bars([(f"{label}, {p[0]:g} ranks", p[1]) for label, points in curves.items() for p in points[1:]], ""),
    )


def _collective(entry: Entry) -> list[str]:
    info = entry.info
    return [
        f"{info['adapter']}{', in place' * info['in_place']}",
        info["link"],
        str(info["world_size"]),
        str(info["bytes"]),
        with_spread(entry.data, 1e3),
        significant(info["busbw"] * 8),
        str(info["wrong"]),
    ]
