"""Tables with the columns of nccl-tests, which many users and scripts know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median

from ddpcheck.counted_nouns import counted

from .pytest_benchmark_records import Point

_LEFT = f"{'size':>12} {'count':>12} {'type':>8} {'redop':>6}"
_RIGHT = f"{'time':>9} {'algbw':>8} {'busbw':>8} {'#wrong':>7}"
_NAME = 60
_EMULATED = ", computed by waiting; hidden: share of the smaller of backward and communication"
_LEGENDS = {
    "collective": """\
size          bytes of the vector, or of what all_gather collects or reduce_scatter distributes in total
time          one call on the slowest rank, half a round trip for send_recv: median over iterations, then over launches
algbw, busbw  size / time, and x 2(n-1)/n for all_reduce, x (n-1)/n for all_gather and reduce_scatter; 1 GB: 10^9 bytes
#wrong        wrong elements of the results, on all ranks together""",
    "step": """\
weak, strong  the batch of each rank, or of all ranks together, is the same at every world size
batch         samples of each rank
step          one optimizer step on the slowest rank: median over iterations, then over launches
compute       the same step inside no_sync(), without communication
exposed       step - compute in each launch, then the median: communication for which the step waits; noise can make it negative
hidden        share of an all-reduce of as many bytes that overlaps with backward; 100% if exposed is negative or zero; - at one
              rank, or if the adapter has no all_reduce to compare with
peak          most resident memory of a rank since its start, all earlier measurements included""",
}
"""The meaning of the columns, by the kind of a point."""
_UNITS = f"{'(us)':>9} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}"


def tables(points: Iterable[Point]) -> Iterator[str]:
    """One block of lines for each implementation, world size and collective, sizes ascending."""
    collectives = [point for point in points if point.info["kind"] == "collective"]
    for (adapter, world_size, collective), group in groupby(
        collectives, key=lambda point: (point.info["adapter"], point.info["world_size"], point.info["collective"])
    ):
        rows = list(group)
        link, cores = rows[0].info["link"], rows[0].info["cores"]
        over = (
            " (oversubscribed: more ranks than cores)" if world_size > cores and not link else f" ({link})" * bool(link)
        )
        yield f"{adapter}, {collective}, {counted(world_size, 'rank')}{over}\n{_block(rows)}"


def step_tables(points: Iterable[Point]) -> Iterator[str]:
    """One block of lines for each model: steps with and without communication, and the exposed part of it."""
    steps = [point for point in points if point.info["kind"] == "step"]
    for model, group in groupby(sorted(steps, key=_by_model), key=lambda point: point.info["model"]):
        rows = list(group)
        lines = [
            f"steps of the model {model}, {rows[0].info['parameters']} parameters{_EMULATED * any(rows[0].info['delays'])}",
            f"{'':>{_NAME}} {'batch':>6} {'step':>9} {'compute':>9} {'exposed':>9} {'hidden':>7} {'peak':>6}",
            f"{'':>{_NAME}} {'(rank)':>6} {'(ms)':>9} {'(ms)':>9} {'(ms)':>9} {'':>7} {'(MiB)':>6}",
        ]
        yield "\n".join([*lines, *map(_step_line, rows)])


def legend(points: Sequence[Point]) -> str:
    """The meaning of the columns in the tables of these points, and how many have no spread; empty without points."""
    kinds = {point.info["kind"] for point in points}
    once = sum(len(point.data) == 1 for point in points)
    lines = [text for kind, text in _LEGENDS.items() if kind in kinds]
    if once:
        lines.append(
            f"one launch    {once} of {len(points)} times have no spread between launches: --launches 3 measures it"
        )
    return "\n".join(lines)


def _by_model(point: Point) -> tuple[int, str, int, str]:
    return point.info["parameters"], point.info["adapter"], point.info["world_size"], point.name


def _step_line(point: Point) -> str:
    found = point.info["parts"]
    exposed, hidden = found["exposed"], found["hidden" if found["of_possible"] is None else "of_possible"]
    cells = [
        f"{point.name.removeprefix('step[').removesuffix(']'):<{_NAME}}",
        f"{point.info['batch']:>6}",
        f"{found['step'] * 1e3:>9.3f}",
        f"{'-':>9}" if found["compute"] is None else f"{found['compute'] * 1e3:>9.3f}",
        f"{'-':>9}" if exposed is None else f"{exposed * 1e3:>9.3f}",
        f"{'-':>7}" if hidden is None else f"{hidden:>7.0%}",
        f"{max(point.info['peak_kib']) / 1024:>6.0f}",
    ]
    return " ".join(cells)


def _block(rows: Sequence[Point]) -> str:
    inside = {point.info["bytes"]: point for point in rows if point.info["in_place"]}
    halves = 1 + bool(inside)
    blank = f"{'':>12} {'':>12} {'':>8} {'':>6}"
    lines = [
        f"{blank} {'out of place':>35}" + f" {'in place':>35}" * bool(inside),
        " ".join([_LEFT, *[_RIGHT] * halves]),
        " ".join([f"{'(B)':>12} {'(elements)':>12} {'':>8} {'':>6}", *[_UNITS] * halves]),
    ]
    for point in rows:
        info = point.info
        if info["in_place"]:
            continue
        cells = [f"{info['bytes']:>12} {info['count']:>12} {info['dtype']:>8} {info['redop']:>6}", _times(point)]
        cells += [_times(inside[info["bytes"]])] if info["bytes"] in inside else []
        lines.append(" ".join(cells))
    return "\n".join(lines)


def _times(point: Point) -> str:
    info = point.info
    rates = [f"{info[name]:>8.3g}" if info[name] is not None else f"{'-':>8}" for name in ("algbw", "busbw")]
    return f"{median(point.data) * 1e6:>9.2f} {rates[0]} {rates[1]} {info['wrong']:>7}"
