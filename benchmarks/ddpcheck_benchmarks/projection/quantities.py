"""Links, times and numbers of ranks as texts, parsed and printed; sizes are parsed in sizes.py."""

from __future__ import annotations

import math
import re

from .formulas import Link

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_RATE = re.compile(r"([\d.]+)\s*([kKMGT]i?)?(bE|bit/s|bps|b/s|B/s|Bps)", re.ASCII)
_TIME = re.compile(r"([\d.]+)\s*(ns|us|µs|μs|ms|s)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST_RANKS = 1 << 24


def parse_link(text: str) -> Link:
    """Parse RATE:LATENCY such as 25GbE:20us, 400Gbps:2us or 3GB/s:5us. ValueError names the wrong part."""
    rate_text, separator, latency_text = text.partition(":")
    if not separator:
        raise ValueError(f"link {text!r} has no latency: write RATE:LATENCY, for example {text}:20us")
    return Link(parse_seconds(latency_text), 1 / parse_rate(rate_text))


def parse_rate(text: str) -> float:
    """Bytes/s of 25GbE, 400Gbps, 1Gbit/s or 3GB/s. ValueError names the wrong part."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a rate: write bits as 25GbE, 100Gbit/s or 400Gbps, bytes as 3GB/s")
    number, prefix, unit = match.groups()
    bits = unit in {"bE", "bit/s", "bps", "b/s"}
    rate = _number(number, text) * _factor(prefix) / (8 if bits else 1)
    if not 0 < rate < math.inf:
        raise ValueError(f"a link of {text!r} has no bandwidth: give a rate above 0")
    return rate


def parse_seconds(text: str) -> float:
    """A time such as 20us, 1.5ms or 0.1s. ValueError if it is not a time."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time: write a number with ns, us, ms or s, for example 20us")
    return _number(match[1], text) * _SECONDS[match[2]]


def parse_ranks(text: str) -> tuple[int, ...]:
    """8..4096 (doubling; the last included) or 8,16,64, rising. ValueError if it is neither."""
    try:
        if ".." in text:
            low, high = (int(part) for part in text.split(".."))
            found = [low * 2**i for i in range(64) if low * 2**i < high and low > 0] + [high]
            valid = 2 <= low <= high <= _MOST_RANKS
        else:
            found = [int(part) for part in text.split(",")]
            valid = all(2 <= each <= _MOST_RANKS for each in found)
    except ValueError:
        found, valid = [], False
    if not valid:
        raise ValueError(
            f"{text!r} are not numbers of ranks: write 8..4096 (doubling, the smaller first) or 8,16,64, each from 2 to 16777216"
        )
    return tuple(sorted(set(found)))


def size_text(size: float) -> str:
    """IEC units, as in 64 KiB; no fraction for whole numbers."""
    for unit, factor in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if size >= factor:
            return f"{_three(size / factor)} {unit}"
    return f"{_three(size)} B"


def time_text(seconds: float) -> str:
    """Three significant digits with a suitable unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * factor:
            return f"{_three(seconds / factor)} {unit}"
    return f"{_three(seconds / 1e-9)} ns"


def percent(share: float, *, sign: bool = False) -> str:
    return f"{100 * share:{'+' if sign else ''}.0f} %"


def factor_text(factor: float) -> str:
    return f"×{_three(factor)}"


def _three(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value) * 1.0005)))
    shown = f"{value:.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} in {whole!r} is not a number") from None


def _factor(prefix: str | None) -> float:
    return {**_PREFIXES, **_BINARY}.get(prefix or "", 0.0)
