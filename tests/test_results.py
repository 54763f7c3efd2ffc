"""Result files are read as they were written, and CI servers can read theirs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import DataObject, data, from_type

from ddpcheck import Diagnosis, Job, RankTrace, Trace, Verdict
from ddpcheck.causes import ranks
from ddpcheck.job import (
    AllReduce,
    Attempt,
    Backward,
    DataSpec,
    Join,
    OnRanks,
    Operation,
    Rounds,
    Score,
    Sleep,
    Start,
    TensorSpec,
)
from ddpcheck.models.spec import mlp
from ddpcheck.storage.dataclass_json import to_plain
from ddpcheck.storage.environment import Environment
from ddpcheck.storage.failing_jobs import Failure, write_failure
from ddpcheck.storage.files import UnreadableFile
from ddpcheck.storage.junit import save_junit
from ddpcheck.storage.operation_words import PHRASES, in_words
from ddpcheck.storage.replay import described, summarised
from ddpcheck.storage.results import Results
from ddpcheck.trace import Record
from ddpcheck_reports.conformance import markdown

JOB = Job(2, (AllReduce(TensorSpec((3,))), Backward(((0,), (1,)))), mlp((2, 1)), data=DataSpec(2))
LEFT = ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,))
WRONG = Diagnosis("got 2, but should be 1", (LEFT,), "the division", ("rank 1: \x1b[31mred\x00", "more"))
VERDICTS = (
    Verdict("mine", 1, "check_a", "sums", "passed", 0.5, 8),
    Verdict("mine", 2, "check_a", "sums", "failed", 1.25, 3, diagnosis=WRONG, job=JOB),
    Verdict("mine", 2, "check_b", "sums", "hung", diagnosis=Diagnosis("rank 1 hung")),
    Verdict("mine", 2, "check_c", "groups", "skipped", reason="subgroups is not promised"),
    Verdict("mine", 2, "check_d", "groups", "expected_failure", reason="ticket 7", diagnosis=WRONG),
    Verdict("mine", 2, "check_e", "groups", "unknown", reason="Traceback: ZeroDivisionError"),
)


def test_json_round_trip(tmp_path: Path) -> None:
    results = Results(VERDICTS, {"profile": "quick", "seed": None})
    results.save(tmp_path / "new" / "results.json")
    again = Results.load(tmp_path / "new" / "results.json")
    assert again == results
    assert again.verdicts[1].job == JOB
    assert again.environment == Environment.here()
    assert again.environment.packages["numpy"] == np.__version__


def test_a_file_of_schema_1_whose_causes_are_sentences_is_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    Results(VERDICTS).save(path)
    data = json.loads(path.read_text()) | {"schema": "ddpcheck.results/1"}
    for verdict in data["verdicts"]:
        if "diagnosis" in verdict:
            del verdict["diagnosis"]["causes"]
            verdict["diagnosis"]["cause"] = "summed, not averaged"
    path.write_text(json.dumps(data))
    diagnosis = Results.load(path).verdicts[1].diagnosis
    assert diagnosis is not None
    assert diagnosis.causes == ()
    assert diagnosis.details[0] == "likely cause: summed, not averaged"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "cannot be read"),
        ("[]", "has schema None"),
        ('{"schema": "ddpcheck.results/99"}', "'ddpcheck.results/99', but should have 'ddpcheck.results/2'"),
        ('{"schema": "ddpcheck.results/2"}', "is damaged: 'verdicts'"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=words):
        Results.load(path)


def test_failure_round_trip(tmp_path: Path) -> None:
    path = write_failure(tmp_path / "failures", "my_ddp:adapter", VERDICTS[1])
    assert path is not None
    assert path.name == "mine-w2-check_a.json"
    assert Failure.load(path) == Failure("my_ddp:adapter", 2, "check_a", JOB, causes=(LEFT,))
    assert "launcher" not in path.read_text()
    path = write_failure(tmp_path / "failures", "my_ddp:adapter", VERDICTS[1], "fork")
    assert path is not None
    assert Failure.load(path).launcher == "fork"
    data = json.loads(path.read_text())
    data["job"]["operations"][0]["kind"] = "all_confuse"
    path.write_text(json.dumps(data))
    with pytest.raises(UnreadableFile, match="unknown kind 'all_confuse'"):
        Failure.load(path)


def test_only_failures_leave_a_file(tmp_path: Path) -> None:
    assert [write_failure(tmp_path, "x:y", verdict) for verdict in VERDICTS if verdict is not VERDICTS[1]] == [None] * 5
    assert list(tmp_path.iterdir()) == []


def test_junit(tmp_path: Path) -> None:
    save_junit(VERDICTS, tmp_path / "junit.xml")
    root = ET.parse(tmp_path / "junit.xml").getroot()
    one, two = root.findall("testsuite")
    assert (one.get("name"), one.get("tests"), one.get("failures"), one.get("time")) == ("mine-w1", "1", "0", "0.500")
    assert [two.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["5", "2", "1", "2"]
    failed, hung, skipped, expected, unknown = two.findall("testcase")
    assert (failed.get("classname"), failed.get("name")) == ("mine.sums", "check_a[w2]")
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == "got 2, but should be 1"
    assert failure.get("type") == "left-collective-early"
    assert "likely cause: Rank 1 left a collective early" in (failure.text or "")
    assert "rank 1: ?[31mred?" in (failure.text or "")  # characters that XML cannot hold are replaced
    assert hung.find("failure[@type='hung']") is not None
    assert skipped.find("skipped[@message='subgroups is not promised']") is not None
    assert expected.find("skipped[@message='expected failure: ticket 7']") is not None
    error = unknown.find("error")
    assert error is not None
    assert "ZeroDivisionError" in (error.text or "")


def test_report_shows_every_verdict_once() -> None:
    page = markdown(Results(VERDICTS, {"profile": "quick"}))
    assert "| mine | 1, 2 | 1 | 1 | 1 | 1 | 1 | 1 | 11 |" in page
    assert "| `check_a` | ✓ ✗ |" in page
    assert "**mine, world size 2: `check_a`**" in page
    assert "likely cause: Rank 1 left a collective early" in page
    assert "| mine | subgroups is not promised | `check_c` |" in page
    assert "| profile | quick |" in page
    assert page.index("## Failures by cause") < page.index("## Failures\n") < page.index("## sums")


def test_report_has_the_command_that_runs_each_failure_again() -> None:
    page = markdown(Results(VERDICTS), lambda verdict: f"again {Path.cwd()}/{verdict.check}")
    for check in ("check_a", "check_b", "check_e"):
        assert f"Run again:\n\n```sh\nagain {check}\n```" in page
    assert page.count("Run again:") == 3
    assert "Run again:" not in markdown(Results(VERDICTS))


def test_replay_describes_results_of_each_rank() -> None:
    same = Record(0, "all_reduce", 0.0, 1.0, {"result": np.array([1.5, 2.0, -3.0], np.float32), "argument": None})
    stuck = Record(1, "backward", 1.0, None, {})
    both = (
        RankTrace(0, "done", (same, Record(1, "backward", 1.0, 2.0, {"loss": 0.5}))),
        RankTrace(1, "hung", (same, stuck), stack="in recv"),
    )
    text = "\n".join(described(JOB, Trace(both, 1.0)))
    assert "  0 all_reduce tensor=tensor(shape=[3])" in text
    assert "all ranks:\n          result = float32[3] 1.5 2 -3" in text
    assert "rank 0: loss = 0.5\n      rank 1: hung here" in text
    assert text.endswith("rank 0: done\nrank 1: hung\n      in recv")
    poisoned = replace(JOB, data=DataSpec(2, poisoned=(1,)))
    assert "data: 2 samples; nan in sample 1" in "\n".join(described(poisoned, Trace(both, 1.0)))
    assert summarised(np.arange(20)) == "int64[20] 0 1 2 3 4 5 6 7 ..."


NESTED = (Attempt, OnRanks, Rounds)
"""Operations that hold operations."""


@pytest.mark.parametrize("kind", [DataSpec, Start, *(each for each in get_args(Operation) if each not in NESTED)])
@settings(max_examples=10)
@given(values=data())
def test_replay_has_words_for_any_value(kind: type, values: DataObject) -> None:
    drawn = values.draw(from_type(kind))
    assert in_words(to_plain(drawn)).startswith(drawn.kind)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (
            Backward(((0, 1, 2, 3), (4,), ()), sync=False, interrupted=(0, 1)),
            "backward: samples 0-3 on rank 0, 4 on rank 1, none on rank 2; inside no_sync(); "
            "then an exception of the training program leaves no_sync() on ranks 0, 1",
        ),
        (
            Backward(((0, 2), (3,)), branches=(("left",), ()), weights=((0.5, 1.0), (2.0,))),
            "backward: samples 0 2 on rank 0, 3 on rank 1; branches left on rank 0, none on rank 1; "
            "sample weights 0.5 1.0 on rank 0, 2.0 on rank 1",
        ),
        (
            Attempt(AllReduce(TensorSpec((3,)), wait=False, group=(0, 2))),
            "attempt: an exception is caught; all_reduce tensor=tensor(shape=[3]): in the group of ranks 0, 2; asynchronous",
        ),
        (OnRanks((0, 2), Sleep(2, 0.5)), "on_ranks: only ranks 0, 2; sleep: rank 2 is late by 0.5 s"),
        (Join((((0, 1), (2, 3)), ())), "join: batches 0 1 then 2 3 on rank 0, no batch on rank 1"),
        (
            Score("rmse", ((0, 1, -1), (2,))),
            "score name=rmse: samples 0 1 and 1 of padding on rank 0, 2 on rank 1",
        ),
    ],
)
def test_replay_says_which_ranks_do_what(operation: Operation, words: str) -> None:
    assert in_words(to_plain(operation)) == words


def test_every_field_of_ranks_and_every_switch_has_words() -> None:
    """They say little as name=value. Types are strings in these modules."""
    kinds = (*get_args(Operation), Start)
    of_ranks = {
        "ranks",
        "rank",
        "interrupted",
        "broken",
        "peeks",
        "extra",
        "pairs",
        "order",
        "hosts",
        "group",
        "disturbed",
    }
    needed = {
        (kind.kind, field.name)
        for kind in kinds
        for field in fields(kind)
        if field.type in ("bool", "PerRank") or field.name in of_ranks
    }
    assert {each for each in needed if each not in PHRASES and ("", each[1]) not in PHRASES} == set()
    known = {(kind.kind, field.name) for kind in (*kinds, DataSpec) for field in fields(kind)}
    assert {each for each in PHRASES if each not in known and each[0]} == set()


def test_an_observation_is_kept_and_shown_and_costs_no_verdict() -> None:
    verdict = Verdict("mine", 2, "check_this", "wire", "passed", observation="a step sends 2.0 x the least bytes")
    assert verdict.ok
    assert Verdict.from_plain(json.loads(json.dumps(verdict.to_plain()))) == verdict
    page = markdown(Results((verdict,), {}))
    assert "## Observed, without a verdict" in page
    assert "a step sends 2.0 x the least bytes" in page
