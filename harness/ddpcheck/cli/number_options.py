"""Number options: each has a range, and a value out of range is a usage error before anything starts."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from ..job import MOST_RANKS

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DAY = 86_400


class WholeNumber(click.IntRange):
    """An integer in a range, in ASCII digits. int() would also accept other scripts' digits, and underscores."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not (_WHOLE.fullmatch(value) and len(value) < 30):
            self.fail(f"{value[:40]!r} is not an integer in this range: {self._describe_range()}", param, ctx)
        number: Any = value
        return super().convert(number, param, ctx)


class FiniteNumber(click.FloatRange):
    """A number in a range. NaN and infinities are in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number in this range: {self._describe_range()}", param, ctx)
        return found


RANKS = WholeNumber(1, MOST_RANKS)
SEED = WholeNumber(0, (1 << 63) - 1)
SECONDS = FiniteNumber(0, _DAY, min_open=True)
COUNT = WholeNumber(1, 1_000_000)


def world_sizes(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    """Callback of an option whose value is a list such as 1,2,4 or 1-4."""
    if text is None:
        return None
    sizes: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if found is None:
            raise click.BadParameter(f"{text[:60]!r} should be world sizes such as 1,2,4 or 1-4", ctx, param)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise click.BadParameter(f"{part!r} should be rising world sizes: {last}-{first}", ctx, param)
        if not 1 <= first <= last <= MOST_RANKS:
            raise click.BadParameter(f"{part!r} should be world sizes from 1 to {MOST_RANKS}", ctx, param)
        sizes += range(first, last + 1)
    return tuple(dict.fromkeys(sizes))
