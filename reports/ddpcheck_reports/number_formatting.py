"""Numbers for readers: three significant digits, a unit, and the spread."""

from __future__ import annotations

import math
from collections.abc import Sequence

_Z = 1.96


def significant(value: float | None) -> str:
    """Three digits, fixed-point, without an exponent if that is short; - for unknown values."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    places = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, min(places, 7))}f}"


def with_spread(data: Sequence[float], scale: float = 1.0) -> str:
    """1.23 [1.20, 1.31]: the median, and its 95 % interval from ranks; the range of all values below 6 launches; 1.23
    (once).
    """
    if len(data) == 1:
        return f"{significant(data[0] * scale)} (once)"
    low, middle, high = (significant(value * scale) for value in _interval(data))
    return f"{middle} [{low}, {high}]"


def _interval(data: Sequence[float]) -> tuple[float, float, float]:
    """The lower end, the median and the upper end."""
    ordered, n = sorted(data), len(data)
    low, high = ordered[0], ordered[-1]
    if n >= 6:
        low = ordered[max(0, math.floor((n - _Z * math.sqrt(n)) / 2) - 1)]
        high = ordered[min(n, math.ceil(1 + (n + _Z * math.sqrt(n)) / 2)) - 1]
    return low, (ordered[(n - 1) // 2] + ordered[n // 2]) / 2, high


def share_with_spread(part: Sequence[float], whole: Sequence[float], scale: float = 1.0) -> str:
    """76 % [70, 85]: the ratio of the medians, and the least and the largest ratio of ends of both intervals; 76 % (once)
    if a side has one value.
    """
    (low, middle, high), (least, base, most) = _interval(part), _interval(whole)
    ratio = percent(middle / base * scale)
    if min(len(part), len(whole)) == 1:
        return f"{ratio} (once)"
    return f"{ratio} [{low / most * scale * 100:.0f}, {high / least * scale * 100:.0f}]"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"


def bytes_named(count: float) -> str:
    """64 KiB; bytes below 1 KiB."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def bars(rows: Sequence[tuple[str, float]], unit: str, width: int = 40) -> str:
    """Horizontal bars of text, in the given order."""
    if not rows:
        return ""
    longest = max(value for _, value in rows) or 1.0
    names = max(len(name) for name, _ in rows)
    lines = []
    for name, value in rows:
        eighths = round(max(0.0, value) / longest * width * 8)
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        lines.append(f"{name:<{names}}  {bar:<{width}}  {significant(value)} {unit}")
    return "\n".join(lines)


def grid(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, aligned right except the first."""
    lines = [list(names), *(list(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    )
