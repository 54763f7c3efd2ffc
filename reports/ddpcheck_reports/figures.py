"""Figures as SVG. Equal data gives equal bytes: no date, and ids from a fixed salt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator

from ddpcheck.storage.files import atomic_file

Point = tuple[float, float, float, float]
Series = Mapping[str, Sequence[Point]]
"""(x, value, low, high) by label."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666")  # Okabe and Ito
_MARKERS = "osD^vPX"
_STYLE: Any = {"svg.hashsalt": "ddpcheck", "svg.fonttype": "path", "font.size": 10, "axes.grid": True, "grid.alpha": 0.3,
          "axes.spines.top": False, "axes.spines.right": False, "figure.facecolor": "white"}  # fmt: skip


def _literal(text: str) -> str:
    """The name as a literal: matplotlib would read a formula between dollar signs."""
    return text.replace("$", r"\$")


def colour(position: int) -> str:
    return _COLOURS[position % len(_COLOURS)]


def lines(path: Path, panels: Mapping[str, Series], axes: Mapping[str, Any]) -> None:
    """Panels side by side, with curves and their spread.

    axes: x and y (labels), x_base (logarithmic to that base), y_log, ideal (a level), edge (a vertical line: x, label).
    """

    def curve(place: Axes, position: int, points: Any) -> Any:
        x, y, low, high = zip(*points, strict=True)
        spread = ([a - b for a, b in zip(y, low, strict=True)], [b - a for a, b in zip(y, high, strict=True)])
        return place.errorbar(
            x, y, yerr=spread, color=colour(position), marker=_MARKERS[position % 7], ms=5, lw=1.5, capsize=2
        )

    _in_panels(path, panels, 4.1, curve, lambda place, title: _dress(place, title, axes))


def _in_panels(
    path: Path,
    panels: Mapping[str, Mapping[str, Any]],
    height: float,
    curve: Callable[[Axes, int, Any], Any],
    dress: Callable[[Axes, str], None],
) -> None:
    """Panels side by side, and one legend. curve: draws the data of a label, whose position gives its colour."""
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(max(6.4, 4.6 * len(panels) + 0.6), height), layout="constrained")
        every = list(dict.fromkeys(label for panel in panels.values() for label in panel))
        handles: dict[str, Any] = {}
        places = canvas.subplots(1, len(panels), squeeze=False)[0]
        for place, (title, panel) in zip(places, panels.items(), strict=True):
            for label, data in panel.items():
                handles[label] = curve(place, every.index(label), data)
            dress(place, title)
        canvas.legend(
            [handles[label] for label in every],
            list(map(_literal, every)),
            loc="outside lower center",
            ncols=1 + len(panels),
            frameon=False,
        )
        _save(canvas, path)


def _dress(place: Axes, title: str, axes: Mapping[str, Any]) -> None:
    place.set_title(_literal(title), fontsize=10)
    place.set_xlabel(axes["x"])
    place.set_ylabel(axes["y"])
    if "x_base" in axes:
        place.set_xscale("log", base=axes["x_base"])
    if "x_ticks" in axes:
        values, names = axes["x_ticks"]
        place.set_xticks(values, names, rotation=45 * (len(values) > 5), fontsize=8)
        place.minorticks_off()
    if axes.get("y_log"):
        place.set_yscale("log")
    else:
        place.set_ylim(bottom=0, top=axes.get("y_top"))
    if "ideal" in axes:
        place.axhline(axes["ideal"], color="black", lw=1, ls="--")
    if "edge" in axes:
        x, label = axes["edge"]
        place.axvline(x, color="grey", lw=1, ls=":")
        place.text(x, 0.03, f" {label}", color="grey", fontsize=8, transform=place.get_xaxis_transform())


def ecdf(path: Path, panels: Mapping[str, Mapping[str, Sequence[float]]], unit: str) -> None:
    """Panels side by side: the share of values up to each value; logarithmic, to show the tails."""

    def dress(place: Axes, title: str) -> None:
        _dress(place, title, {"x": unit, "y": "share of steps", "y_top": 1.02})
        place.set_xscale("log")
        place.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        place.xaxis.set_major_formatter("{x:g}")
        place.xaxis.set_minor_formatter("")

    _in_panels(
        path, panels, 3.9, lambda place, position, values: place.ecdf(values, color=colour(position), lw=1.5), dress
    )


def stacked(path: Path, names: Sequence[str], parts: Mapping[str, Sequence[float]], unit: str) -> None:
    """Horizontal bars, one for each name, with their parts side by side."""
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(8.2, 0.36 * len(names) + 1.5), layout="constrained")
        place = canvas.subplots()
        left = [0.0] * len(names)
        for position, (part, values) in enumerate(parts.items()):
            place.barh(list(map(_literal, names)), values, left=left, label=part, color=colour(position), height=0.7)
            left = [a + b for a, b in zip(left, values, strict=True)]
        place.invert_yaxis()
        place.set_xlabel(unit)
        place.grid(visible=False, axis="y")
        if len(parts) > 1:
            canvas.legend(loc="outside lower center", ncols=len(parts), frameon=False)
        _save(canvas, path)


def timeline(path: Path, ranks: Sequence[Sequence[tuple[str, float, float]]], title: str) -> None:
    """The activity of every rank over time, in milliseconds: one row for computing, one for communicating."""
    with mpl.rc_context(_STYLE):
        kinds = list(dict.fromkeys(_kind(name) for spans in ranks for name, _, _ in spans))
        rows = [(rank, lane) for rank in range(len(ranks)) for lane in ("compute", "communicate")]
        rows = [row for row in rows if any(_lane(name) == row[1] for name, _, _ in ranks[row[0]])]
        canvas = Canvas(figsize=(8.2, 0.42 * len(rows) + 1.5), layout="constrained")
        place = canvas.subplots()
        for height, (rank, lane) in enumerate(rows):
            for name, begin, end in ranks[rank]:
                if _lane(name) == lane:
                    place.barh(
                        height, (end - begin) * 1e3, left=begin * 1e3, height=0.7, edgecolor="white", linewidth=0.5,
                        color=colour(kinds.index(_kind(name))), label=_literal(_kind(name)),
                    )  # fmt: skip
        place.set_yticks(range(len(rows)), [f"rank {rank}, {lane}" for rank, lane in rows], fontsize=8)
        place.invert_yaxis()
        place.set_xlabel("ms since the first rank began the step")
        place.set_title(_literal(title), fontsize=10)
        handles, labels = place.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True))
        canvas.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4, frameon=False)
        _save(canvas, path)


def _lane(name: str) -> str:
    return "communicate" if name.startswith("all_reduce") else "compute"


def _kind(name: str) -> str:
    return "all_reduce of a bucket" if name.startswith("all_reduce") else name


def _save(canvas: Canvas, path: Path) -> None:
    with atomic_file(path) as file:
        canvas.savefig(file, format="svg", metadata={"Date": None})
