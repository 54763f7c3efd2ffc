"""The HTML page of a result file: it shows all content of the file, escaped, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_results import VERDICTS

from ddpcheck import Diagnosis, Verdict
from ddpcheck.cli import main
from ddpcheck.storage.results import Results
from ddpcheck_reports.web.page import page

EVIL = '<script>alert(1)</script><img src="https://example.org/x" onerror=alert(2)>\x1b[31m"\'&'


class Seen(HTMLParser):
    """The elements with their attributes; asserts that each opened element is closed."""

    VOID = frozenset({"meta", "br", "wbr", "input"})

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_one_job_and_one_world_size_are_singular() -> None:
    one = Verdict("mine", 2, "check_a", "sums", "passed", 0.5, 1)
    assert "world size 2; 1 Job; " in " ".join(Seen(page(Results((one,), {}))).words)
    assert "world sizes 2, 3; 2 Jobs; " in " ".join(Seen(page(Results((one, replace(one, world_size=3)), {}))).words)


def test_every_verdict_is_in_the_matrix_and_every_failure_is_told() -> None:
    document = page(Results(VERDICTS, {"profile": "quick"}))
    seen = Seen(document)
    words = " ".join(seen.words)
    assert "mine: 2 of 3 laws broken; 1 check crashed" in words
    rows = [attributes["data-name"] for name, attributes in seen.elements if name == "tr" and "data-name" in attributes]
    assert rows == ["check_a", "check_b", "check_c", "check_d", "check_e"]
    places = {attributes["id"] for name, attributes in seen.elements if name == "article"}
    links = {(attributes["href"] or "")[1:] for name, attributes in seen.elements if name == "a"}
    assert places == links
    assert "&lt;t" not in document  # no element is shown as text
    assert len(places) == 3
    assert "got 2, but should be 1" in words
    assert "left-collective-early" in words
    assert "ZeroDivisionError" in words
    assert "subgroups is not promised" in words
    assert "0 all_reduce" in words  # the Job, with its ranks side by side
    assert re.search(r"<td>rows=\[0\]</td>\s*<td>rows=\[1\]</td>|<td>.*\[0\].*</td><td>.*\[1\].*</td>", document)


def test_outcomes_of_ranks_are_shown_side_by_side() -> None:
    fate = Diagnosis("rank 1 hung", by_rank=("done", "hung in operation 3 (barrier)"))
    document = page(Results((Verdict("mine", 2, "check_b", "sums", "hung", diagnosis=fate),)))
    assert "<th>in the end</th><td>done</td><td>hung in operation 3 (barrier)</td>" in document


def test_outcomes_of_ranks_round_trip_through_a_file(tmp_path: Path) -> None:
    fate = Diagnosis("rank 1 hung", operation=3, by_rank=("done", "hung in operation 3 (barrier)"))
    assert fate.text() == "rank 1 hung\n  rank 0: done\n  rank 1: hung in operation 3 (barrier)"
    Results((Verdict("mine", 2, "check_b", "sums", "hung", diagnosis=fate),)).save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").verdicts[0].diagnosis == fate


def test_file_contents_are_shown_not_interpreted() -> None:
    told = Diagnosis(EVIL, advice=EVIL, details=(EVIL,), by_rank=(EVIL, EVIL))
    verdicts = (
        Verdict(EVIL, 2, EVIL, EVIL, "failed", diagnosis=told),
        Verdict(EVIL, 2, "check_s", EVIL, "skipped", reason=EVIL, not_covered=(EVIL,)),
        Verdict(EVIL, 2, "check_u", EVIL, "unknown", reason=EVIL),
    )
    document = page(Results(verdicts, {EVIL: EVIL}))
    seen = Seen(document)
    assert sum(name == "script" for name, _ in seen.elements) == 1
    assert not any(name in ("img", "iframe", "link") for name, _ in seen.elements)
    assert not any(key.startswith("on") for _, attributes in seen.elements for key in attributes)
    assert "\x1b" not in document


def test_page_loads_nothing_from_other_hosts() -> None:
    document = page(Results(VERDICTS))
    assert "default-src &#x27;none&#x27;" in document
    assert not re.search(r"""(src|href)=["'](?!#)|url\(|@import|https?://""", document)


def test_a_page_of_passes_says_so() -> None:
    document = page(Results((Verdict("mine", 1, "check_a", "sums", "passed", 0.5, 8),)))
    assert "✓ mine: 1 law judged, none broken" in document
    assert "Failures by cause" not in document


def test_the_page_of_an_audit_begins_with_its_answer() -> None:
    verdicts = (Verdict("train.py", 2, "replicas_stay_equal", "replicas", "passed"),)
    answered = {"audit": True, "answer": "YES: train.py on 2 ranks is the run of one process", "seconds": 38.8}
    document = page(Results(verdicts, answered))
    assert "<h1>✓ YES: train.py on 2 ranks is the run of one process</h1>" in document
    assert "38.8 s for the runs of the script" in document


def test_a_pass_with_an_observation_is_a_note() -> None:
    seen = "names in it begin with `module.`"
    document = page(Results((Verdict("mine", 2, "check_a", "sums", "passed", observation=seen),)))
    assert f'title="note: {seen}">•</td>' in document


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Results(VERDICTS).save(Path("run.json"))
    done = CliRunner().invoke(main, ["report", "--html", "run.json"])
    assert (done.exit_code, done.output) == (0, "wrote run.html\n")
    assert Path("run.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    done = CliRunner().invoke(main, ["report", "--html", "run.json", "-o", "run.json"])
    assert done.exit_code == 2
    done = CliRunner().invoke(main, ["report", "--html", "absent.json"])
    assert done.exit_code == 2
    assert "absent.json cannot be read" in done.output
