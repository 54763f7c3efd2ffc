"""Float arrays and numbers that a script's variables hold, by path, such as params['w1'] or model.bias."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...seeded_values import Array
from ..recorder.patching import OWN, is_library

_DEPTH = 6
_CHILDREN = 2000
_ELEMENTS = 1 << 26


@dataclass
class Found:
    """arrays: float arrays by path, in order, each once. containers: the path of each array's container. numbers:
    floats by path.
    """

    arrays: dict[str, Array] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)


def found_in_frames(frame: types.FrameType | None, without: object) -> Found:
    """The arrays in the script's frames, innermost frame first; arrays of `without` are left out."""
    found = Found()
    seen = {id(each) for each in leaves(without)}
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(OWN) and not is_library(file):
            for name, value in frame.f_locals.items():
                if not name.startswith("__"):
                    _walk(value, name, frame.f_code.co_name, found, seen, _DEPTH)
        frame = frame.f_back
    return found


def leaves(value: object) -> Iterator[Array]:
    """The arrays of nested containers."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from leaves(each)


def _walk(value: Any, path: str, container: str, found: Found, seen: set[int], depth: int) -> None:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and 0 < value.size <= _ELEMENTS and id(value) not in seen:
            seen.add(id(value))
            found.arrays.setdefault(path, value)
            found.containers.setdefault(path, container)
        return
    if isinstance(value, (float, np.floating)):
        found.numbers.setdefault(path, float(value))
        return
    if depth == 0 or id(value) in seen:
        return
    children = _children(value, path)
    if children:
        seen.add(id(value))
        for name, each in children[:_CHILDREN]:
            _walk(each, name, path, found, seen, depth - 1)


def _children(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", each) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{number}]", each) for number, each in enumerate(value)]
    kind = type(value)
    if kind is types.SimpleNamespace or dataclasses.is_dataclass(kind) or _of_the_script(kind):
        return [(f"{path}.{name}", each) for name, each in getattr(value, "__dict__", {}).items()]
    return []


def _of_the_script(kind: type) -> bool:
    if kind.__module__ == "__main__":
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and not is_library(file) and not file.startswith(OWN)


def digest(array: Array) -> str:
    """A digest of shape, dtype and bits."""
    made = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=8)
    made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def digest_of_nest(value: object) -> str:
    """A digest of all arrays in nested containers, in order, and of the text of other values."""
    parts: list[str] = []
    _digest(value, parts)
    return hashlib.blake2b("".join(parts).encode(), digest_size=8).hexdigest()


def _digest(value: object, parts: list[str]) -> None:
    if isinstance(value, np.ndarray):
        parts.append(digest(value) if value.dtype != object else repr(value.tolist()))
    elif isinstance(value, Mapping):
        for each in value.values():
            _digest(each, parts)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _digest(each, parts)
    else:
        parts.append(repr(value))


def samples_in(value: object) -> int:
    """The number of samples in a batch: the length of its first array, or of a list without arrays."""
    for each in leaves(value):
        return int(each.shape[0]) if each.ndim else 1
    return len(value) if isinstance(value, list) else 0


def rows_of(value: object, size: int) -> list[str]:
    """A digest of each sample, over its row in every array; empty if no array has one row per sample."""
    fitting = [each for each in leaves(value) if each.ndim and each.shape[0] == size and each.dtype != object]
    return [digest_of_nest([each[row] for each in fitting]) for row in range(size)] if fitting else []
