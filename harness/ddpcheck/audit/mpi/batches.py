"""Joins the ranks' batches into one batch of all samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Misfit(Exception):
    """The ranks' batches do not fit together; the message says how."""


def put_together(values: Sequence[Any], samples: Sequence[int], shift: int = 0) -> Any:
    """Arrays joined along the dimension of samples, through dicts, lists and tuples. shift: samples to roll by.

    Misfit if batches differ in structure, or in values that do not belong to samples.
    """
    first = values[0]
    if isinstance(first, np.ndarray) and first.ndim:
        return _joined(values, samples, shift)
    if isinstance(first, Mapping) and all(isinstance(each, Mapping) and list(each) == list(first) for each in values):
        return {key: put_together([each[key] for each in values], samples, shift) for key in first}
    if isinstance(first, list) and all(len(each) == size for each, size in zip(values, samples, strict=True)):
        every = [each for value in values for each in value]
        return every[-shift:] + every[:-shift] if shift else every
    if isinstance(first, (list, tuple)) and len({len(each) for each in values}) == 1:
        parts = [put_together(each, samples, shift) for each in zip(*values, strict=True)]
        if isinstance(first, tuple):
            return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
        return parts
    if all(type(each) is type(first) and np.array_equal(each, values[0]) for each in values[1:]):
        return first
    raise Misfit("the ranks' batches hold different values that do not belong to samples")


def _joined(values: Sequence[Any], samples: Sequence[int], shift: int) -> Any:
    first = values[0]
    for place in range(first.ndim):
        rest = {(each.ndim, *each.shape[:place], *each.shape[place + 1 :]) for each in values}
        if len(rest) == 1 and all(each.shape[place] == size for each, size in zip(values, samples, strict=True)):
            made = np.concatenate(values, axis=place)
            return np.roll(made, shift, axis=place) if shift else made
    if all(np.array_equal(each, first) for each in values[1:]):
        return first
    shapes = ", ".join(str(each.shape) for each in values)
    raise Misfit(f"the ranks' batches have arrays of shapes {shapes}: they differ in more than the number of samples")


def nudged(value: Any) -> Any:
    """Float arrays with every second value one unit up in the last place, the others down; integers are unchanged."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f":
            return value
        away = np.where(np.arange(value.size).reshape(value.shape) % 2, -np.inf, np.inf).astype(value.dtype)
        return np.where(value == np.round(value), value, np.nextafter(value, away))
    if isinstance(value, Mapping):
        return {key: nudged(each) for key, each in value.items()}
    if isinstance(value, list):
        return [nudged(each) for each in value]
    if isinstance(value, tuple):
        parts = [nudged(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
