"""The conclusion of a check: Finding (raised by a check), Diagnosis (the wrong value and its likeliest causes),
Verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .causes import Cause
from .causes.cause import Given, as_causes
from .causes.ranks import METHOD_MISSING
from .job import Job

Status = Literal["passed", "failed", "skipped", "expected_failure", "hung", "unknown"]

SYMBOLS: dict[str, str] = {
    "passed": "✓",
    "failed": "✗",
    "skipped": "-",
    "expected_failure": "x",
    "hung": "⧗",
    "unknown": "?",
}

NOTED_SYMBOL = "•"
"""In place of a passed check's symbol, if there is an observation."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a check failed.

    headline: one line: got and expected, rank, parameter or operation. causes: possible causes, the likeliest first;
    empty if the evidence suggests none. advice: the next step, for any cause. subject: the wrong value: ("gradients",
    "fc1.weight"), ("loss", ""); empty if there is none. operation: the position in the Job of the operation that shows
    it; -1 if there is none. by_rank: the outcome of each rank, in rank order, if a rank raised, died or hung; empty if
    all finished. details: further lines: a few elements, stacks.
    """

    headline: str
    causes: tuple[Cause, ...] = ()
    advice: str = ""
    details: tuple[str, ...] = ()
    subject: tuple[str, str] = ("", "")
    operation: int = -1
    by_rank: tuple[str, ...] = ()

    @property
    def cause(self) -> Cause | None:
        """The likeliest cause, or None."""
        return self.causes[0] if self.causes else None

    def text(self) -> str:
        """The whole diagnosis as text."""
        lines = [self.headline]
        for number, cause in enumerate(self.causes):
            lines.append(f"  {'or' if number else f'{cause.certainty} cause'}: {cause.headline} [{cause.id}]")
            lines += [f"      {cause.because}"] if cause.because else []
            lines += [f"      look at: {cause.look}"] if cause.look else []
        lines += [f"  look next at: {self.advice}"] if self.advice else []
        lines += [f"  rank {rank}: {fate}" for rank, fate in enumerate(self.by_rank)]
        lines += [f"  {line}" for detail in self.details for line in detail.splitlines()]
        return "\n".join(lines)


class Finding(AssertionError):
    """A check found its law broken. `hung` marks a rank that did not return.

    `job` is the smallest Job that shows it; the caller sets it.
    """

    def __init__(self, diagnosis: Diagnosis, *, hung: bool = False) -> None:
        super().__init__(diagnosis.text())
        self.diagnosis = diagnosis
        self.hung = hung
        self.job: Job | None = None

    def blaming(self, *causes: Given) -> Finding:
        """The same finding with these causes in place of its own, the likeliest first; a missing method remains the only
        cause.
        """
        if METHOD_MISSING.explains(self.diagnosis.causes):
            return self
        return self._with(causes=tuple(dict.fromkeys(as_causes(causes))))

    def noting(self, note: str) -> Finding:
        """The same finding, with one more line of details."""
        return self._with(details=(*self.diagnosis.details, note))

    def about(self, kind: str, name: str = "") -> Finding:
        """The same finding about this kind of value and this name."""
        return self._with(subject=(kind, name))

    def at(self, operation: int) -> Finding:
        """The same finding, with the position of the operation that shows it."""
        return self._with(operation=operation)

    def _with(self, **changes: Any) -> Finding:
        made = Finding(replace(self.diagnosis, **changes), hung=self.hung)
        made.job = self.job
        return made


class CannotTell(Exception):
    """A check cannot judge here; the text says why. The verdict is a skip, never a pass."""


class Refused(Exception):
    """The system refused a resource, to a rank or to the driver. The verdict is unknown: neither a failure nor a pass."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.headline)
        self.diagnosis = diagnosis


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check on one adapter at one world size.

    `reason`: of a skip or an expected failure; for a pass, how far to trust it; for a crashed check (unknown, never a
    pass), its traceback. `job` is the smallest Job known to fail; `jobs` the number of Jobs run; `seconds` wall time.
    `not_covered` names cases that a passed check left out because they are not promised, such as sub-groups.
    `observation` is a fact that breaks no promise, such as the number of bytes that a step sends.
    """

    adapter: str
    world_size: int
    check: str
    family: str
    status: Status
    seconds: float = 0.0
    jobs: int = 0
    reason: str = ""
    diagnosis: Diagnosis | None = None
    job: Job | None = field(default=None, compare=False)
    not_covered: tuple[str, ...] = ()
    observation: str = ""

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The possible causes of a failure, the likeliest first."""
        return () if self.diagnosis is None else self.diagnosis.causes

    @property
    def cause(self) -> Cause | None:
        """The likeliest cause of a failure, or None."""
        return None if self.diagnosis is None else self.diagnosis.cause

    @property
    def noted(self) -> bool:
        """Whether the check passed with an observation, which may be against the sentence of its law."""
        return self.status == "passed" and bool(self.observation)

    @property
    def ok(self) -> bool:
        """True for outcomes that do not fail a build: passed, skipped, or failed as declared."""
        return self.status in ("passed", "skipped", "expected_failure")

    def text(self) -> str:
        """The whole text of a failure: its diagnosis, or the traceback of a check that crashed."""
        return self.diagnosis.text() if self.diagnosis is not None else f"the check itself crashed:\n{self.reason}"

    def to_plain(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("adapter", "world_size", "check", "family", "status", "seconds", "jobs", "reason")
        }
        if self.diagnosis is not None:
            d = self.diagnosis
            made["diagnosis"] = {
                "headline": d.headline,
                "causes": [cause.to_plain() for cause in d.causes],
                "advice": d.advice,
                "details": list(d.details),
            }
            if d.operation >= 0:
                made["diagnosis"]["operation"] = d.operation
            if d.by_rank:
                made["diagnosis"]["by_rank"] = list(d.by_rank)
        if self.job is not None:
            made["job"] = self.job.to_plain()
        if self.not_covered:
            made["not_covered"] = list(self.not_covered)
        if self.observation:
            made["observation"] = self.observation
        return made

    @staticmethod
    def from_plain(data: dict[str, Any]) -> Verdict:
        values = {**data, "not_covered": tuple(data.get("not_covered", ()))}
        if "diagnosis" in values:
            found = values["diagnosis"]
            causes = tuple(map(Cause.from_plain, found.get("causes", ())))
            told = (f"likely cause: {found['cause']}",) if found.get("cause") else ()  # a text in files of schema 1
            values["diagnosis"] = Diagnosis(
                found["headline"],
                causes,
                found["advice"],
                (*told, *found["details"]),
                operation=found.get("operation", -1),
                by_rank=tuple(found.get("by_rank", ())),
            )
        if "job" in values:
            values["job"] = Job.from_plain(values["job"])
        return Verdict(**values)
