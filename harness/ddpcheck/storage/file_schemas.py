"""The files that ddpcheck writes, as declared types, and their JSON Schemas."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from .. import operations
from ..audit.conditions import Source
from ..audit.evidence import RandomStreams, RunSeen, StepSeen
from ..causes import Certainty
from ..job import Job
from ..verdict import Status
from .environment import Environment
from .json_schema import Schema, document


class CauseForm(TypedDict):
    id: str
    parameters: dict[str, Any]
    certainty: Certainty
    headline: NotRequired[str]


class DiagnosisForm(TypedDict):
    headline: str
    causes: list[CauseForm]
    advice: str
    details: list[str]
    operation: NotRequired[int]
    by_rank: NotRequired[list[str]]


class VerdictForm(TypedDict):
    adapter: str
    world_size: int
    check: str
    family: str
    status: Status
    seconds: float
    jobs: int
    reason: str
    diagnosis: NotRequired[DiagnosisForm]
    job: NotRequired[Job]
    not_covered: NotRequired[list[str]]


class EvidenceForm(TypedDict):
    schema: Literal["ddpcheck.audit/1"]
    script: list[str]
    ranks: int
    steps: int
    far: int
    real: RunSeen
    mirrors: dict[str, RunSeen]
    compared: list[StepSeen]
    random_streams: NotRequired[RandomStreams]
    sources: NotRequired[dict[str, Source]]


class ResultsForm(TypedDict):
    """evidence: of an audit; `ddpcheck audit --judge` reads it."""

    schema: Literal["ddpcheck.results/2"]
    environment: Environment
    settings: dict[str, Any]
    verdicts: list[VerdictForm]
    evidence: NotRequired[EvidenceForm]


class FailureForm(TypedDict):
    schema: Literal["ddpcheck.failure/1"]
    adapter: str
    world_size: int
    check: str
    launcher: NotRequired[str]
    causes: NotRequired[list[CauseForm]]
    job: Job


FORMS: dict[str, tuple[type[Any], str]] = {
    "ddpcheck.results/2": (
        ResultsForm,
        "Verdicts of ddpcheck check --json, and of ddpcheck audit --json with its evidence.",
    ),
    "ddpcheck.failure/1": (FailureForm, "A failing Job that ddpcheck replay runs again, as ddpcheck check writes it."),
    "ddpcheck.audit/1": (EvidenceForm, "The evidence of an audit, which is a part of its results."),
}
"""The type of each schema, with a description of the file."""


def schemas() -> dict[str, Schema]:
    """The JSON Schema of each form, by its name."""
    names = {"Operation": operations.Operation}  # operations that contain others name them before all are defined
    return {name: document(form, name, text, names) for name, (form, text) in FORMS.items()}
