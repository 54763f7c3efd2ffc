"""Errors for promises that do not exist, with the nearest name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, if there is one."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {str(near[0])!r}?" if near else ""


def refuse_unknown(kind: type[Any], given: Collection[str], elsewhere: Mapping[str, str]) -> None:
    """TypeError if a dataclass is given an unknown field. elsewhere: other promises by name, with their places."""
    known = kind.__dataclass_fields__
    for name in given:
        if name in known:
            continue
        if name in elsewhere:
            what = f"; it is a promise of {elsewhere[name]}"
        else:
            near = get_close_matches(name, [*known, *elsewhere], 1)
            what = f"; did you mean {near[0]!r}" * bool(near)
            whose = elsewhere.get(near[0]) if near and near[0] not in known else None
            what += f" of {whose}?" if whose else "?" * bool(near)
        raise TypeError(f"{kind.__name__} has no promise {name!r}{what}")
