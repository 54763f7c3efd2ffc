"""Sizes in bytes as texts: 4B, 64KiB, 1.5MiB, 100MB. KiB, MiB and GiB are powers of two; kB, MB and GB powers of
ten.
"""

from __future__ import annotations

import re
from fractions import Fraction

_IEC = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9} | _IEC
_FACTORS = {unit.lower(): factor for unit, factor in _UNITS.items()}
_ONE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", re.ASCII)


def size(text: str) -> int:
    """The number of bytes; a number without unit is bytes; case is ignored. ValueError if the text is no size above
    0.
    """
    found = _ONE.fullmatch(text.strip())
    count = Fraction(found[1]) * _FACTORS.get(found[2].lower(), 0) if found else Fraction(0)
    if count <= 0 or count.denominator != 1:
        units = ", ".join(filter(None, _UNITS))
        raise ValueError(f"{text!r} is not a size: write bytes above 0 as 64KiB, 1.5MiB or 100MB (units: {units})")
    return int(count)


def ladder(first: int, last: int, factor: int) -> tuple[int, ...]:
    """From first to last, each `factor` times the one before; last is always included."""
    found = [first]
    while found[-1] * factor < last:
        found.append(found[-1] * factor)
    return tuple(dict.fromkeys([*found, last]))


def sizes(text: str) -> tuple[int, ...]:
    """Bytes of 4B..256MiB (in factors of 8), of 4B,64KiB (a list), or of both mixed. ValueError if there is
    none.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        bounds = size(first), size(last if dots else first)
        if bounds[0] > bounds[1]:
            raise ValueError(f"{part!r} should go from a size to a larger one")
        found += ladder(*bounds, 8)
    return tuple(sorted(set(found)))


def named(count: int) -> str:
    """64KiB for 65536; other numbers stay in bytes."""
    for unit, scale in _IEC.items():
        if count >= scale and count % scale == 0:
            return f"{count // scale}{unit}"
    return f"{count}B"
