"""JSON Schemas: docs/schemas/ matches the code, written files fit them, and stored files are read."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from test_results import JOB, VERDICTS

from ddpcheck import Job
from ddpcheck.audit.evidence import Evidence, RunSeen, StepSeen
from ddpcheck.causes import ranks
from ddpcheck.contract import TYPICAL
from ddpcheck.storage import file_schemas
from ddpcheck.storage.dataclass_json import to_plain
from ddpcheck.storage.failing_jobs import Failure
from ddpcheck.storage.json_schema import document
from ddpcheck.storage.results import Results
from ddpcheck_properties import strategies
from ddpcheck_reports.result_files import read

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).parent / "stored"
sys.path.insert(0, str(ROOT / "docs" / "site"))

import schemas  # noqa: E402  # in the folder of the pages


def published(name: str) -> Any:
    return json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))


def validate(data: Any, name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(published(name)).validate(data)


def test_published_schemas_are_those_of_the_code() -> None:
    """To update: python docs/site/schemas.py"""
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "schemas").glob("*.json")}
    assert files == schemas.texts()


def test_every_schema_is_in_the_table() -> None:
    page = (ROOT / "docs" / "schemas" / "index.md").read_text(encoding="utf-8")
    for name in (*file_schemas.FORMS, "ddpcheck.bench/1"):
        assert f"| `{name}` |" in page


def test_results_fit(tmp_path: Path) -> None:
    evidence = Evidence(("train.py",), 2, 1, 1, RunSeen((({"kind": "end"},),)), {}, (StepSeen(0, 0, v=(1.0, 1.0)),))
    Results(VERDICTS, {"profile": "quick"}).save(
        tmp_path / "results.json", evidence={"schema": "ddpcheck.audit/1", **evidence.to_plain()}
    )
    data = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    validate(data, "results-2")
    validate(data["evidence"], "audit-1")


def test_failures_fit(tmp_path: Path) -> None:
    cause = ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,))
    Failure("my_ddp:adapter", 2, "check_a", JOB, "fork", (cause,)).save(tmp_path / "failure.json")
    validate(json.loads((tmp_path / "failure.json").read_text(encoding="utf-8")), "failure-1")


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(strategies.training_jobs(2, TYPICAL, optimizer=strategies.adam(), uneven=True))
def test_drawn_jobs_fit(job: Job) -> None:
    validate(
        {"schema": "ddpcheck.failure/1", "adapter": "a", "world_size": 2, "check": "c", "job": to_plain(job)},
        "failure-1",
    )


def test_measurements_fit() -> None:
    ranks_seen = [{"median": 1e-3, "slowest": 0.5}] * 2
    timed = {"p25": 1e-3, "p95": 4e-3, "worst": 9e-3, "cv": 0.1, "spikes": 1, "global_seconds": 1e-3, "cores": 2}
    info = {
        **timed, "kind": "collective", "collective": "all_reduce", "adapter": "a", "world_size": 2, "bytes": 4, "count": 1,
        "redop": "sum", "in_place": False, "algbw": 1.0, "busbw": None, "wrong": 0, "ranks": ranks_seen, "later": 1,
    }  # fmt: skip
    load = {"seconds": 1.0, "loadavg_before": [0.1], "loadavg_after": [0.1]}
    here = {"python": "3.11", "platform": "Linux", "processor": "x", "cores": 2, "packages": {}}
    run = {
        "schema": "ddpcheck.bench/1",
        "environment": here,
        "settings": {},
        "load": load,
        "problems": [],
        "skipped": [],
    }
    entry = {"name": "all_reduce[a]", "extra_info": info, "stats": {"data": [1e-3], "min": 1e-3}}
    validate({"benchmarks": [entry], "ddpcheck": {**run, "consistency": []}, "version": "5"}, "bench-1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"world_size": "two"}, "two"),
        ({"operations": [{"kind": "all_confuse"}]}, "all_confuse"),
        ({"later": 1}, "later"),
    ],
)
def test_other_jobs_do_not_fit(change: Mapping[str, Any], words: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    data = {
        "schema": "ddpcheck.failure/1",
        "adapter": "a",
        "world_size": 2,
        "check": "c",
        "job": {**to_plain(JOB), **change},
    }
    with pytest.raises(jsonschema.ValidationError, match=words):
        validate(data, "failure-1")


@pytest.mark.parametrize("name", ["results-1", "results-2"])
def test_stored_results_are_read(name: str) -> None:
    results = Results.load(STORED / f"{name}.json")
    assert [(verdict.check, verdict.status) for verdict in results.verdicts] == [(v.check, v.status) for v in VERDICTS]
    assert results.verdicts[1].job == JOB
    assert results.environment.packages["numpy"] == "2.1.0"


def test_stored_failures_are_read() -> None:
    assert Failure.load(STORED / "failure-1.json").job == JOB
    validate(json.loads((STORED / "failure-1.json").read_text(encoding="utf-8")), "failure-1")
    validate(json.loads((STORED / "results-2.json").read_text(encoding="utf-8")), "results-2")


def test_stored_measurements_are_read() -> None:
    """Files of earlier versions stay readable."""
    validate(json.loads((STORED / "bench-1.json").read_text(encoding="utf-8")), "bench-1")
    measured = read([STORED / "bench-1.json"])
    assert [(entry.info["kind"], entry.info["adapter"], entry.info["world_size"]) for entry in measured.entries] == [
        ("collective", "numpy_sockets", 2),
        ("collective", "numpy_sockets", 2),
        ("startup", "numpy_sockets", 2),
    ]
    assert measured.entries[0].linked
    assert [run["schema"] for run in measured.runs] == ["ddpcheck.bench/1"]


def test_stored_evidence_is_read() -> None:
    """Evidence of a version that did not yet have micro_batches, part_factors, whole_output and random_streams."""
    evidence = Evidence.load(STORED / "audit-1.json")
    assert evidence.compared == (StepSeen(0, 0, v=(0.5, 0.5), v_off={"0.0": 0.25}, w=((1.0, 1.0),)),)
    assert evidence.random_streams == "different"
    validate(json.loads((STORED / "audit-1.json").read_text(encoding="utf-8")), "audit-1")


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    data = json.loads((STORED / "audit-1.json").read_text(encoding="utf-8"))
    data["compared"][0]["later"] = data["real"]["later"] = data["later"] = 1
    (tmp_path / "later.json").write_text(json.dumps(data), encoding="utf-8")
    validate(data, "audit-1")
    assert Evidence.load(tmp_path / "later.json") == Evidence.load(STORED / "audit-1.json")


def test_types_that_no_file_holds_are_an_error() -> None:
    class Form(TypedDict):
        schema: Literal["x/1"]
        held: set[int]

    with pytest.raises(TypeError, match="no file holds"):
        document(Form, "x/1", "")
