"""Figures as SVG with the colours of the page's style, for light and dark mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ddpcheck.verdict import Verdict

from .html import Html, tag

_NAME, _BAR, _NUMBER, _ROW = 110, 240, 60, 22


def status_bars(verdicts: Sequence[Verdict], words: Mapping[str, str]) -> Html:
    """A bar for each family, with the share of each status."""
    rows = []
    for family in dict.fromkeys(verdict.family for verdict in verdicts):
        counts = Counter[str](verdict.status for verdict in verdicts if verdict.family == family)
        parts = [
            (status, counts[status], f"{family}: {counts[status]} {words[status]}")
            for status in words
            if counts[status]
        ]
        rows.append((family, parts, str(sum(counts.values()))))
    return _figure("Verdicts of each family, by status", rows, alike=True)


def time_bars(verdicts: Sequence[Verdict]) -> Html:
    """A bar for each family, as long as the time of its checks."""
    seconds: Counter[str] = Counter()
    for verdict in verdicts:
        seconds[verdict.family] += verdict.seconds  # type: ignore[assignment]  # a Counter adds up any numbers
    rows = [
        (family, [("seconds", spent, f"{family}: {spent:.1f} s")], f"{spent:.1f} s")
        for family, spent in seconds.items()
    ]
    return _figure("Seconds of each family's checks, over all world sizes", rows)


_Row = tuple[str, Sequence[tuple[str, float, str]], str]
"""A name, the parts of its bar (class, size, words) and a number beside it."""


def _figure(caption: str, rows: Sequence[_Row], *, alike: bool = False) -> Html:
    """alike: all bars have the same length."""
    longest = max((sum(size for _, size, _ in parts) for _, parts, _ in rows), default=0) or 1
    drawn = [part for number, row in enumerate(rows) for part in _drawn(number, row, longest, alike=alike)]
    width = _NAME + _BAR + _NUMBER
    svg = tag("svg", *drawn, viewBox=f"0 0 {width} {len(rows) * _ROW}", role="img", aria_label=caption)
    return tag("figure", tag("figcaption", caption), svg)


def _drawn(number: int, row: _Row, longest: float, *, alike: bool) -> Iterable[Html]:
    name, parts, beside = row
    top, whole = number * _ROW, sum(size for _, size, _ in parts) or 1
    yield tag("text", name, x=_NAME - 8, y=top + 15, text_anchor="end")
    x = float(_NAME)
    for kind, size, words in parts:
        width = _BAR * size / (whole if alike else longest)
        yield tag(
            "rect", tag("title", words), x=f"{x:.1f}", y=top + 3, width=f"{width:.1f}", height=_ROW - 6, class_=kind
        )
        x += width
    yield tag("text", beside, x=f"{x + 6:.1f}", y=top + 15)
