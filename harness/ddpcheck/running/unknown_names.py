"""Errors for unknown names that list close names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def require_known(name: str, known: Iterable[str], what: str) -> str:
    """`name`, if it is one of `known`. Otherwise ValueError with close names, or all."""
    names = tuple(known)
    if name in names:
        return name
    raise ValueError(f"unknown {what} {name!r}; {close_names(name, names)}")


def close_names(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """The end of an error message: close names, or all and then `otherwise`."""
    every = sorted(names)
    close = difflib.get_close_matches(name, every, n=3, cutoff=0.6)
    # a part of a long name is far by edit distance, but users often type one
    close += [other for other in every if name in other and other not in close][:3]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known are {', '.join(every) or 'none'}{otherwise}"
