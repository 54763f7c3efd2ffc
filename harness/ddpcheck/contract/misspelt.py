"""Errors for fields of promises that do not exist: they name the right one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any


def refuse_unknown(kind: type[Any], given: Collection[str], elsewhere: Mapping[str, type[Any]]) -> None:
    """TypeError if a dataclass is given a field that it lacks. elsewhere: the fields of others, with the class of each."""
    known = kind.__dataclass_fields__
    for name in given:
        if name in known:
            continue
        if name in elsewhere:
            what = f"; it is a promise of {elsewhere[name].__name__}"
        else:
            near = get_close_matches(name, [*known, *elsewhere], 1)
            what = f"; did you mean {near[0]!r}" * bool(near)
            whose = elsewhere.get(near[0]) if near and near[0] not in known else None
            what += f" of {whose.__name__}?" if whose else "?" * bool(near)
        raise TypeError(f"{kind.__name__} has no promise {name!r}{what}")
