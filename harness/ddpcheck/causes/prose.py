"""Causes that are still sentences: for the time until every law makes values. To be removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .cause import Cause, Kind

PROSE = Kind("prose", "{text}", text=str)


def as_causes(given: str | Cause | Iterable[Any] | None) -> tuple[Cause, ...]:
    """Causes, of causes or of sentences; empty sentences are left out."""
    if isinstance(given, Cause):
        return (given,)
    if given is None:
        return ()
    if isinstance(given, str):
        return (PROSE(text=given),) if given else ()
    return tuple(cause for each in given for cause in as_causes(each))
