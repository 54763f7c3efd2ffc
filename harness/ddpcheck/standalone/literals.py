"""Arrays and strings as source text that evaluates to the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..numerics import same_bits
from ..seeded_values import Array

_WIDTH = 100


def literal(array: Array) -> str:
    """`np.array(..., dtype)` of any shape; every bit is restored, except NaN payloads."""
    dtype = f'"{array.dtype.name}"'
    if not array.size:
        return f"np.zeros({array.shape}, {dtype})"
    text = f"np.array({_nested(array)}, {dtype})"
    made = eval(text, {"np": np})  # our own text
    nan = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
    if not same_bits(np.where(nan, array, made), array):
        raise ValueError(f"{array.dtype.name} values have no decimal literal")
    return text


def bound(error: float) -> str:
    """A bound on rounding, rounded up."""
    return _number(error if error in (0.0, math.inf) else float(f"{error * 1.006:.2e}"))


def _nested(array: Array) -> str:
    if array.ndim == 0:
        return _number(array[()])
    return f"[{', '.join(_nested(part) for part in array)}]"


def _number(value: Any) -> str:
    """The shortest decimal for this number in its dtype."""
    if np.asarray(value).dtype.kind != "f":
        return str(value)
    if not math.isfinite(value):
        return str(float(value)).replace("inf", "np.inf").replace("nan", "np.nan")
    whole = float(value).is_integer() and abs(float(value)) < 1e6
    return str(int(value)) if whole and (value != 0 or not np.signbit(value)) else str(value)


def text_literal(text: str) -> str:
    """A string as source text, with any characters."""
    plain = text.isascii() and text.isprintable() and not set(text) & {'"', "\\"}
    return f'"{text}"' if plain else repr(text)


def listed(parts: list[str], name: str) -> str:
    """`name = [...]`, one part per line if it is long."""
    text = f"{name} = [{', '.join(parts)}]"
    return (
        text
        if len(text) <= _WIDTH and "\n" not in text
        else f"{name} = [\n" + "".join(f"    {part},\n" for part in parts) + "]"
    )
