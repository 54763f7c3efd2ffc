"""Collectives: time and bandwidth over message size, then all results in the columns of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .document import Block, Figure, Heading, Table, Text
from .figures import Point, Series, lines
from .number_formatting import bytes_named, grid, significant, with_spread
from .result_files import Entry, Measured, distinct

_BUSBW = (
    "`size` is the total size of the data: the vector that is reduced, broadcast or sent, the total that all_gather "
    "collects or reduce_scatter distributes. `algbw` = size / time. `busbw` = algbw x 2(n-1)/n for all_reduce, x "
    "(n-1)/n for all_gather and reduce_scatter, x 1 otherwise: the traffic on each rank's wire, which can be "
    "compared between collectives and numbers of ranks. Ranks of one host have no wire: there the number is the rate "
    "of copies in memory. send_recv is one message: half a round trip between the first rank and the last. `#wrong` "
    "counts elements that are not exactly right, on all ranks, in all launches."
)
_NAMES = ("implementation", "size (B)", "count", "type", "redop", "time (µs)", "algbw (GB/s)", "busbw (GB/s)", "#wrong")


def collectives(measured: Measured, plots: Path) -> Iterator[Block]:
    entries = measured.of("collective")
    if not entries:
        return
    yield Heading("Collectives")
    yield Text(_BUSBW)
    for world_size in distinct(entries, lambda entry: entry.info["world_size"]):
        own = [entry for entry in entries if entry.info["world_size"] == world_size]
        if world_size == 1:
            continue
        crowded = own[0].crowded
        yield Heading(f"{world_size} ranks{': functional, oversubscribed' if crowded else ''}", 3)
        if crowded:
            yield Text(
                f"{world_size} ranks share {own[0].info['cores']} cores: these times show that the collectives work, "
                "and how time slices are shared. They do not show scaling."
            )
        else:
            yield from _figures(own, world_size, plots)
        for name in distinct(own, lambda entry: entry.info["collective"]):
            rows = [_row(entry) for entry in own if entry.info["collective"] == name]
            yield Table(_NAMES, rows, f"**{name}**, {world_size} ranks")


def _label(entry: Entry) -> str:
    return f"{entry.info['adapter']}{', in place' * entry.info['in_place']}"


def _row(entry: Entry) -> list[str]:
    info = entry.info
    barrier = info["collective"] == "barrier"
    return [
        _label(entry),
        "-" if barrier else str(info["bytes"]),
        "-" if barrier else str(info["count"]),
        info["dtype"],
        info["redop"],
        with_spread(entry.data, 1e6),
        significant(info["algbw"]),
        significant(info["busbw"]),
        str(info["wrong"]),
    ]


def _figures(entries: list[Entry], world_size: int, plots: Path) -> Iterator[Block]:
    chosen = [entry for entry in entries if entry.info["collective"] == "all_reduce"]
    sizes = distinct(chosen, lambda entry: entry.info["bytes"])
    if len(sizes) < 2:
        return
    times: Series = {
        label: [
            (e.info["bytes"], e.seconds * 1e6, min(e.data) * 1e6, max(e.data) * 1e6)
            for e in chosen
            if _label(e) == label
        ]
        for label in distinct(chosen, _label)
    }
    rates: Series = {
        label: [
            (x, _rate(x, t, world_size), _rate(x, high, world_size), _rate(x, low, world_size))
            for x, t, low, high in points
        ]
        for label, points in times.items()
    }
    title = f"all_reduce, {world_size} ranks"
    low, fastest = min((points[0][1], label) for label, points in times.items())
    yield _over_size(
        plots / f"all-reduce-time-p{world_size}.svg",
        f"Time of all_reduce in µs over size, {world_size} ranks: {fastest} is fastest at {bytes_named(sizes[0])} with "
        f"{significant(low)} µs.",
        title,
        times,
        sizes,
        {"y": "time (µs)", "y_log": True},
    )
    best, widest = max((points[-1][1], label) for label, points in rates.items())
    yield _over_size(
        plots / f"all-reduce-busbw-p{world_size}.svg",
        f"Bus bandwidth of all_reduce in GB/s over size, {world_size} ranks: {widest} reaches {significant(best)} GB/s at "
        f"{bytes_named(sizes[-1])}.",
        title,
        rates,
        sizes,
        {"y": "busbw (GB/s)"},
    )


def _over_size(file: Path, text: str, title: str, curves: Series, sizes: Sequence[int], axes: dict[str, Any]) -> Figure:
    shown = sizes if len(sizes) < 7 else sizes[::2]
    ticks = (shown, [bytes_named(size) for size in shown])
    lines(file, {title: curves}, {"x": "size of the vector", "x_base": 2, "x_ticks": ticks, **axes})
    rows = [[bytes_named(size), *(_at(points, size) for points in curves.values())] for size in sizes]
    return Figure(f"{file.parent.name}/{file.name}", text, grid(["size", *curves], rows))


def _rate(size: float, micro: float, world_size: int) -> float:
    return size / micro * 1e-3 * 2 * (world_size - 1) / world_size


def _at(points: Sequence[Point], size: float) -> str:
    return next((significant(y) for x, y, _, _ in points if x == size), "-")
