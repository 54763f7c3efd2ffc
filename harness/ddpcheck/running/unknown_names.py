"""Errors for unknown names that list close names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def require_known(name: str, known: Iterable[str], what: str) -> str:
    """`name`, if it is one of `known`. Otherwise ValueError with close names, or all."""
    names = tuple(known)
    if name in names:
        return name
    raise ValueError(f"unknown {what} {name!r}; {close_names(name, names)}")


def close_names(name: str, names: Iterable[str]) -> str:
    """The end of an error message: close names, or all."""
    every = sorted(names)
    close = names_close_to(name, every)
    return f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(every) or 'none'}"


def names_close_to(name: str, names: Sequence[str]) -> list[str]:
    """Up to three similar names, then up to three that contain the name."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    # a part of a long name is far by edit distance, but users often type one
    return close + [other for other in names if name in other and other not in close][:3]
