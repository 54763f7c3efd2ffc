"""Arrays and declarations as source text that evaluates to the same bits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..models.spec import ModelSpec
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


def bound(error: Array) -> str:
    """A bound, rounded up; one number if all are equal; inf if unknown."""
    known = np.where(np.isfinite(error), error, np.inf)
    rounded = [_rounded_up(float(value)) for value in known.reshape(-1)]
    if len(set(rounded)) == 1:
        return _number(rounded[0])
    return f"np.array({_nested(np.array(rounded).reshape(error.shape))})"


def _rounded_up(value: float) -> float:
    return value if value in (0.0, math.inf) else float(f"{value * 1.006:.2e}")


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


def declaration(value: Any, used: set[str]) -> str:
    """A dataclass as a call, without fields at their default; adds the names of the classes to `used`."""
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, tuple):
        inside = [declaration(item, used) for item in value]
        return f"({', '.join(inside)}{',' * (len(inside) == 1)})"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    used.add(type(value).__name__)
    words = []
    for number, field in enumerate(dataclasses.fields(value)):
        item = getattr(value, field.name)
        if field.default is dataclasses.MISSING or item != field.default:
            name = "" if number == 0 else f"{field.name}="
            words.append(name + declaration(item, used))
    return f"{type(value).__name__}({', '.join(words)})"


def model(spec: ModelSpec, used: set[str]) -> str:
    """A ModelSpec, one layer per line."""
    layers = "".join(f"        {declaration(layer, used)},\n" for layer in spec.layers)
    used.add("ModelSpec")
    rest = [f"    {name}={declaration(getattr(spec, name), used)},\n" for name in ("loss", "loss_scale", "dtype")]
    return f"ModelSpec(\n    (\n{layers}    ),\n{''.join(rest)})"


def mapping(arrays: Mapping[str, Array]) -> str:
    """Arrays by name, one per line; an element of a list."""
    return "{\n" + "".join(f'        "{name}": {literal(array)},\n' for name, array in arrays.items()) + "    }"


def listed(parts: list[str], name: str) -> str:
    """`name = [...]`, one part per line if it is long."""
    text = f"{name} = [{', '.join(parts)}]"
    return (
        text
        if len(text) <= _WIDTH and "\n" not in text
        else f"{name} = [\n" + "".join(f"    {part},\n" for part in parts) + "]"
    )
