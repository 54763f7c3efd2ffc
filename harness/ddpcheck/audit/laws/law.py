"""The verdict of a law on a run: held, broken with causes, or not judged with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ...causes import Cause
from ..evidence import Evidence

Status = Literal["held", "broken", "not judged"]


@dataclass(frozen=True)
class LawVerdict:
    """causes: of a broken law, the likeliest first. headline: got and expected.

    note: what was compared, or why there is no verdict. observation: of a law that held: what the user should know all the
    same, such as a limit of the comparison, or a fact against the law's sentence that may be meant. The page calls the law a
    note then, not held.
    """

    status: Status
    headline: str = ""
    causes: tuple[Cause, ...] = ()
    details: tuple[str, ...] = ()
    note: str = ""
    observation: str = ""


def held(note: str = "", *, observation: str = "") -> LawVerdict:
    return LawVerdict("held", note=note, observation=observation)


def not_judged(reason: str) -> LawVerdict:
    return LawVerdict("not judged", note=reason)


def broken(headline: str, *causes: Cause, details: Iterable[str] = ()) -> LawVerdict:
    return LawVerdict("broken", headline, causes, tuple(details))


@dataclass(frozen=True)
class Law:
    """name: as a check's name. family: the part of a run that the law concerns. sentence: the law, as the page states
    it. follows: earlier laws; where one of them is broken, some causes of this one are no finding of their own.
    of_one_process: the run of one process breaks it in the same way.
    """

    name: str
    family: str
    sentence: str
    judge: Callable[[Evidence], LawVerdict]
    follows: tuple[str, ...] = ()
    of_one_process: bool = False
