"""Frozen dataclasses to plain JSON data and back, so that a Job can be stored in a file and replayed.

The decorator `@plain` and a `kind` class variable register a class. An object becomes {"kind": ..., field: value},
without fields at their default; tuples become lists. Unknown kinds and fields are errors that name them.
"""

from __future__ import annotations

import dataclasses
import json
import marshal
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

_CLASSES: dict[str, Any] = {}
_FIELDS: dict[type, tuple[tuple[str, Any], ...]] = {}
_MADE: dict[bytes, Any] = {}
_MOST = 1000


def plain(cls: C) -> C:
    """Register a dataclass under its `kind`."""
    kind = cls.kind  # type: ignore[attr-defined]
    if kind in _CLASSES:
        raise TypeError(f"two classes of kind {kind!r}: {_CLASSES[kind].__name__} and {cls.__name__}")
    _CLASSES[kind] = cls
    _FIELDS[cls] = tuple((f.name, f.default) for f in dataclasses.fields(cls))
    return cls


def to_plain(value: Any) -> Any:
    """JSON data of a registered dataclass, or of a tuple, list or scalar that contains some."""
    if type(value) in _FIELDS:
        return {name: to_plain(item) for name, item in _said(value).items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def _said(value: Any) -> dict[str, Any]:
    """The fields of a registered dataclass that are not at their default, unconverted."""
    made = {"kind": value.kind}
    for name, default in _FIELDS[type(value)]:
        item = getattr(value, name)
        if item is not default and item != default:
            made[name] = item
    return made


_in_json = json.JSONEncoder(separators=(",", ":"), default=_said, check_circular=False).encode


def to_json(value: Any) -> bytes:
    """The JSON text of to_plain(value), faster than by to_plain() first."""
    return _in_json(value).encode()


def from_plain(data: Any) -> Any:
    """Inverse of to_plain. ValueError on an unknown kind or field."""
    if isinstance(data, list):
        return tuple(map(_part, data)) if data and type(data[0]) in _COMPOSITE else tuple(data)  # all of one type
    if not isinstance(data, dict) or "kind" not in data:
        return data
    cls = _CLASSES.get(data["kind"])
    if cls is None:
        raise ValueError(f"unknown kind {data['kind']!r}; known are {', '.join(sorted(_CLASSES))}")
    values = {name: _part(v) if type(v) in _COMPOSITE else v for name, v in data.items()}
    del values["kind"]
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"{data['kind']!r} does not fit {cls.__name__}: {error}") from error


def _part(data: Any) -> Any:
    """Equal data gives the same object, because parts are immutable: models and operations recur from Job to Job."""
    if type(data) is not dict or "kind" not in data:
        return from_plain(data)
    key = marshal.dumps(data, 2)  # tells 1, 1.0 and True apart
    made = _MADE.get(key)
    if made is None:
        if len(_MADE) >= _MOST:
            _MADE.clear()
        made = _MADE[key] = from_plain(data)
    return made


_COMPOSITE = (list, dict)
