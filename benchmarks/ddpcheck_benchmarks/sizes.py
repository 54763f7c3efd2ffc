"""Message sizes, as people write them: 4B, 64KiB, 25MiB; powers of two are IEC, rates are not (GB/s = 1e9 B/s)."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ONE = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


def size(text: str) -> int:
    """Bytes. ValueError if it is no size."""
    found = _ONE.fullmatch(text)
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is no size; write one as 4B, 64KiB or 25MiB")
    return int(found[1]) * _UNITS[found[2].upper()]


def ladder(first: int, last: int, factor: int) -> tuple[int, ...]:
    """From first to last, each `factor` times the one before; last is always there."""
    found = [first]
    while found[-1] * factor < last:
        found.append(found[-1] * factor)
    return tuple(dict.fromkeys([*found, last]))


def sizes(text: str, factor: int = 8) -> tuple[int, ...]:
    """Bytes of 4B..256MiB (a ladder, x`factor`), of 4B,64KiB (these), or of both mixed. ValueError if there is none."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        bounds = size(first), size(last if dots else first)
        if not 0 < bounds[0] <= bounds[1]:
            raise ValueError(f"{part!r} should go from a size above 0 B to a larger one")
        found += ladder(*bounds, factor)
    return tuple(sorted(set(found)))


def named(count: int) -> str:
    """64KiB for 65536; what is no whole multiple keeps its bytes."""
    for unit in ("GiB", "MiB", "KiB"):
        scale = _UNITS[unit.upper()]
        if count >= scale and count % scale == 0:
            return f"{count // scale}{unit}"
    return f"{count}B"
