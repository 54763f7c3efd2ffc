"""The whole output of a script that fails is kept in a file where the page of the audit shows its last lines only."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from audits import FORK_SERVERS

from ddpcheck.audit.event_journal import Event
from ddpcheck.audit.evidence import Evidence, RunSeen
from ddpcheck.audit.evidence_collection import conduct
from ddpcheck.audit.page import markdown, page
from ddpcheck.audit.request import Request, ScriptRun
from ddpcheck.audit.verdicts import verdicts_of
from ddpcheck.audit.whole_output import with_whole_output
from ddpcheck.launchers.launcher import Output
from ddpcheck.storage import long_texts

ENDED: Event = {"kind": "end", "why": "raised", "step": 0}
PRINTS = """
import os, sys
if os.environ["RANK"] == "0":
    print("the first line")
    print("x" * 100_000)
    print("the last line")
    raise SystemExit(1)
import torch
"""


@pytest.fixture
def written() -> Iterator[Output]:
    """The output of a script, which a test fills."""
    output = Output.open()
    yield output
    output.file.close()


def ended(folder: Path, written: Output, printed: str, *, why: str = "raised", script: str = "train.py") -> ScriptRun:
    """A run whose one process has printed this text, with its whole output if that is kept."""
    written.file.write(printed.encode())
    written.file.flush()
    events: tuple[tuple[Event, ...], ...] = (({**ENDED, "why": why},),)
    run = ScriptRun("real", events, (), written.tail(), hung=False, seconds=1.0, folder=folder)
    return with_whole_output(Request((script,), failures=folder / "failures"), run, written)


def test_output_that_is_shown_in_part_is_kept_whole(tmp_path: Path, written: Output) -> None:
    run = ended(tmp_path, written, f"begin{'é' * 100_000}end")
    path = tmp_path / "failures" / "audit-train.py-real.txt"
    assert run.whole_output == f"the whole output of run 'real': {path}"
    assert path.read_text(encoding="utf-8") == f"begin{'é' * 100_000}end\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    evidence = Evidence(("train.py",), 1, 0, 0, Evidence.from_plain(plain(run.seen())).real)
    assert run.whole_output in page(evidence, verdicts_of(evidence))
    assert str(path) in markdown(evidence, verdicts_of(evidence))


def plain(seen: RunSeen) -> dict[str, object]:
    return Evidence(("train.py",), 1, 0, 0, seen).to_plain()


def test_many_short_lines_are_kept_whole(tmp_path: Path, written: Output) -> None:
    assert ended(tmp_path, written, "line\n" * 13).whole_output


@pytest.mark.parametrize(
    ("printed", "why"), [("short\n", "raised"), ("\n short", "raised"), ("", "raised"), ("x" * 50_000, "finished")]
)
def test_output_that_is_shown_whole_or_of_a_run_that_ended_well_needs_no_file(
    tmp_path: Path, written: Output, printed: str, why: str
) -> None:
    assert ended(tmp_path, written, printed, why=why).whole_output == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", ["../a b/\x1b[31m.py", "x" * 250 + ".py", "\udcff.py"])
def test_every_name_of_a_script_gives_a_file_of_the_folder(tmp_path: Path, written: Output, script: str) -> None:
    assert ended(tmp_path, written, "x" * 50_000, script=script).whole_output
    (kept,) = (tmp_path / "failures").iterdir()
    assert kept.name.isprintable()


def test_output_that_cannot_be_kept_is_said(tmp_path: Path, written: Output) -> None:
    (tmp_path / "failures").touch()
    run = ended(tmp_path, written, "x" * 50_000)
    assert run.whole_output.startswith("the whole output of run 'real' is not kept: ")


def test_of_output_beyond_the_limit_the_ends_are_saved(
    tmp_path: Path, written: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_texts, "LARGEST_TEXT", 100)
    written.file.write(f"first{'é' * 1000}last".encode())
    written.file.flush()
    written.save(tmp_path / "saved")
    saved = (tmp_path / "saved").read_text(encoding="utf-8")
    assert saved.startswith("firsté")
    assert saved.endswith("élast\n")
    assert "bytes are left out" in saved
    assert len(saved.encode()) <= 150


def test_an_audit_names_the_file_with_the_whole_output(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PRINTS, encoding="utf-8")
    failures = tmp_path / "failures"
    evidence = conduct(Request((str(tmp_path / "train.py"),), steps=0, fork_servers=FORK_SERVERS, failures=failures))
    shown = page(evidence, verdicts_of(evidence))
    path = failures / "audit-train.py-real.txt"
    assert f"the whole output of run 'real': {path}" in shown
    assert len(shown) < 20_000
    text = path.read_text(encoding="utf-8")
    assert "the first line" in text
    assert "x" * 100_000 in text
    assert "the last line" in text
