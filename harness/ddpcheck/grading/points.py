"""Points of submissions by family: the share of passed checks among those judged in any submission."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..running.failure_groups import group_failures
from ..storage.files import UnreadableFile
from ..verdict import Verdict

Hints = Literal["none", "family", "cause"]
_NO_POINTS = frozenset({"ranks"})
"""Families that every program passes if it starts."""


@dataclass(frozen=True)
class Submission:
    """A checked submission. note: the reason why verdicts are missing; empty if there are all."""

    name: str
    verdicts: tuple[Verdict, ...]
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Grade:
    """points: by family, each at most its weight. hint: in the requested form."""

    name: str
    points: Mapping[str, float]
    seconds: float
    note: str
    hint: str

    @property
    def total(self) -> float:
        return sum(self.points.values())


def read_weights(path: Path) -> dict[str, float]:
    """The table [points] of a TOML file: a number for each family. UnreadableFile if there is none."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))["points"]
        return {str(family): _weight(value) for family, value in table.items()}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, AttributeError, ValueError) as error:
        raise UnreadableFile(f"{path} should have a table [points] with a number for each family: {error}") from error


def _weight(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise ValueError(f"{value!r} is not a weight")
    return float(value)


def grades(submissions: Sequence[Submission], weights: Mapping[str, float], hints: Hints) -> list[Grade]:
    """A grade for each submission, in their order. weights: points for each family; empty: 1 each.

    A check counts once. It counts as passed if it passed at every world size at which it judged any submission.
    """
    judged: dict[str, dict[str, set[int]]] = {}  # world sizes by check, by family
    for submission in submissions:
        for verdict in submission.verdicts:
            if verdict.status != "skipped" and verdict.family not in _NO_POINTS:
                judged.setdefault(verdict.family, {}).setdefault(verdict.check, set()).add(verdict.world_size)
    weights = weights or dict.fromkeys(judged, 1.0)
    found = []
    for submission in submissions:
        passed = {(v.check, v.world_size) for v in submission.verdicts if v.status == "passed"}
        points = {family: weight * _share(judged.get(family, {}), passed) for family, weight in weights.items()}
        found.append(Grade(submission.name, points, submission.seconds, submission.note, _hint(submission, hints)))
    return found


def _share(checks: Mapping[str, set[int]], passed: set[tuple[str, int]]) -> float:
    """The share of `checks` that are passed at all their world sizes."""
    held = sum(all((check, size) in passed for size in sizes) for check, sizes in checks.items())
    return held / len(checks) if checks else 0.0


def _hint(submission: Submission, hints: Hints) -> str:
    """The hint for a submission: none, the family of the failed check, or the cause's headline."""
    groups = group_failures(submission.verdicts)
    if hints == "none" or not groups:
        return ""
    first = groups[0].first
    return first.family if hints == "family" else f"{first.family}: {groups[0].text}"
