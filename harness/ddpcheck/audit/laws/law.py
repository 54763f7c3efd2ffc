"""What a law says of a run: held, broken with causes, or not judged with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ...causes import Cause
from ..evidence import Evidence

Status = Literal["held", "broken", "not judged"]


@dataclass(frozen=True)
class LawVerdict:
    """causes: the likeliest first, if it is broken. headline: got and expected.

    note: how far to trust it, or why it was not judged.
    """

    status: Status
    headline: str = ""
    causes: tuple[Cause, ...] = ()
    details: tuple[str, ...] = ()
    note: str = ""


def held(note: str = "") -> LawVerdict:
    return LawVerdict("held", note=note)


def not_judged(reason: str) -> LawVerdict:
    return LawVerdict("not judged", note=reason)


def broken(headline: str, *causes: Cause, details: Iterable[str] = ()) -> LawVerdict:
    return LawVerdict("broken", headline, causes, tuple(details))


@dataclass(frozen=True)
class Law:
    """name: a check's name. family: which part of a run it is about. sentence: what must hold, as the page says it."""

    name: str
    family: str
    sentence: str
    judge: Callable[[Evidence], LawVerdict]
