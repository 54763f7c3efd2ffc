"""JSON Schema (draft 2020-12) of declared types, for dataclasses and typed dictionaries in files.

Classes of storage/dataclass_json.py have a `kind` and omit fields at their default. Other dataclasses are written in
full, but older files lack fields that came later. So fields with a default are not required.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_SIMPLE: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Any: {},
    object: {},
}


def document(form: type[Any], name: str, description: str, names: Mapping[str, Any] | None = None) -> Schema:
    """The schema of a file whose content has this form. name: the file's name for its schema, such as
    "ddpcheck.results/2".

    names: the names in annotations that their own module does not import.
    """
    made = _Made(names or {})
    inside = made.of(form)
    return {
        "$schema": DRAFT,
        "$id": f"urn:{name.replace('/', ':')}",
        "title": name,
        "description": description,
        **inside,
        "$defs": dict(sorted(made.definitions.items())),
    }


class _Made:
    """Schemas of types; those of classes are stored once, by name."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.definitions: dict[str, Schema] = {}
        self._names = dict(names)

    def of(self, declared: Any) -> Schema:
        """The schema of a type. TypeError for a type that files do not hold."""
        if declared in _SIMPLE:
            return dict(_SIMPLE[declared])
        origin, parts = get_origin(declared), get_args(declared)
        if origin in (NotRequired, Required):
            return self.of(parts[0])
        if origin is Literal:
            return {"const": parts[0]} if len(parts) == 1 else {"enum": list(parts)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(part) for part in parts]}
        if origin is tuple:
            return self._tuple(parts)
        if origin is list or (isinstance(origin, type) and issubclass(origin, list)):
            return {"type": "array", "items": self.of(parts[0])}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if isinstance(declared, type):
            return self._class(declared)
        raise TypeError(f"no file holds values of {declared!r}")

    def _tuple(self, parts: tuple[Any, ...]) -> Schema:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return {"type": "array", "items": self.of(parts[0])}
        size = len(parts)
        return {"type": "array", "prefixItems": [self.of(part) for part in parts], "minItems": size, "maxItems": size}

    def _class(self, declared: type[Any]) -> Schema:
        if declared is dict:
            return {"type": "object"}
        if issubclass(declared, tuple):  # a NamedTuple
            return self._tuple(tuple(self._hints(declared).values()))
        name = declared.__name__.lstrip("_")
        if name not in self.definitions:
            self.definitions[name] = {}  # a class may contain itself
            self.definitions[name] = self._fields_of(declared)
        return {"$ref": f"#/$defs/{name}"}

    def _fields_of(self, declared: type[Any]) -> Schema:
        if typing.is_typeddict(declared):
            hints = self._hints(declared)
            # __required_keys__ is wrong for annotations that are texts, as under `from __future__ import annotations`
            needed = sorted(name for name, hint in hints.items() if get_origin(hint) is not NotRequired)
            return _object({name: self.of(hint) for name, hint in hints.items()}, needed, more=True)
        if not dataclasses.is_dataclass(declared):
            raise TypeError(f"no file holds values of {declared!r}")
        hints, fields = self._hints(declared), dataclasses.fields(declared)
        properties = {field.name: self.of(hints[field.name]) for field in fields}
        needed = [field.name for field in fields if _has_no_default(field)]
        kind = getattr(declared, "kind", None)
        if kind is None:
            return _object(properties, sorted(needed), more=True)
        return _object({"kind": {"const": kind}, **properties}, ["kind", *needed], more=False)

    def _hints(self, declared: type[Any]) -> dict[str, Any]:
        return typing.get_type_hints(declared, localns=self._names, include_extras=True)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _object(properties: Schema, required: list[str], *, more: bool) -> Schema:
    """more: a later version of the same schema may add fields."""
    made: Schema = {"type": "object", "properties": properties, "required": required}
    return made if more else {**made, "additionalProperties": False}
