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
    return did_you_mean(name, every) or f"known are {', '.join(every) or 'none'}{otherwise}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question with close names; empty if none is close."""
    every = sorted(names)
    close = difflib.get_close_matches(name, every, n=3, cutoff=0.6)
    # a part of a long name is far by edit distance, but users often type one
    close += [other for other in every if name in other and other not in close][:3]
    return f"did you mean {' or '.join(close)}?" if close else ""
