"""The whole text of a failure is kept in a file where only a part of it is printed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

import ddpcheck_properties
from ddpcheck.cli import main
from ddpcheck.running import failure_files
from ddpcheck.running.failure_files import FailureFiles
from ddpcheck.storage import long_texts
from ddpcheck.verdict import Diagnosis, Verdict

# pytester removes modules from sys.modules that a run in this process has imported, and NumPy cannot be imported twice
assert ddpcheck_properties.CHECKS

LONG = "begin" + "é" * 100_000 + "the end"
RAISES = """
from dataclasses import replace
from minimal_adapter import Star, adapter as right

class Raising(Star):
    def all_reduce(self, array, op="sum", *, group=None):
        raise ValueError("begin" + "é" * 100_000 + "the end")

def connect(context):
    return replace(right.connect(context), collectives=Raising(context))

def connect_raises(context):
    raise ValueError("begin" + "é" * 100_000 + "the end")

adapter = replace(right, name="raising", connect=connect)
not_started = replace(right, name="not started", connect=connect_raises)
"""
WORDS = ("-w", "1", "-c", "check_all_reduce_sums_exactly", "--profile", "quick")


@pytest.fixture
def raising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with adapters whose ranks raise a long error."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(RAISES, encoding="utf-8")
    return tmp_path


def verdict(text: str) -> Verdict:
    return Verdict("mine", 2, "check_a", "sums", "failed", diagnosis=Diagnosis(text))


@pytest.mark.parametrize(
    ("adapter", "file"),
    [
        ("adapter", "raising-w1-check_all_reduce_sums_exactly.txt"),
        ("not_started", "not_started-w1-check_ranks_start.txt"),
    ],
)
def test_check_names_the_file_with_the_whole_text(raising: Path, adapter: str, file: str) -> None:
    shown = CliRunner().invoke(main, ("check", f"mine.py:{adapter}", *WORDS))
    assert shown.exit_code == 1, shown.output
    path = Path("ddpcheck-failures", file)
    assert f"the whole text: {path}" in shown.output
    assert len(shown.output) < 50_000
    assert f"ValueError: {LONG}" in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_replay_keeps_the_whole_text_beside_the_job(raising: Path) -> None:
    CliRunner().invoke(main, ("check", "mine.py:adapter", *WORDS))
    path = Path("ddpcheck-failures/raising-w1-check_all_reduce_sums_exactly.txt")
    path.unlink()
    shown = CliRunner().invoke(main, ("replay", str(path.with_suffix(".json")), "--adapter", "mine.py:adapter"))
    assert f"the whole text: {path}" in shown.output
    assert LONG in path.read_text(encoding="utf-8")


def test_pytest_names_the_file_with_the_whole_text(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(mine=RAISES)
    pytester.makepyfile(
        "from ddpcheck import parametrize_with_checks\n"
        "@parametrize_with_checks(['mine.py:adapter'], world_sizes=[1], checks=['check_all_reduce_sums_exactly'])\n"
        "def test_mine(check):\n"
        "    check()\n"
    )
    result = pytester.runpytest("--ddp-profile=quick")
    result.assert_outcomes(passed=1, failed=1)
    path = pytester.path / "ddpcheck-failures/raising-w1-check_all_reduce_sums_exactly.txt"
    result.stdout.fnmatch_lines([f"*the whole text: {path}*", "*run again: ddpcheck replay*"])
    assert len(result.stdout.str()) < 50_000
    assert LONG in path.read_text(encoding="utf-8")


def test_of_a_text_beyond_the_limit_the_ends_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_texts, "LARGEST_TEXT", 100)
    FailureFiles(tmp_path).keep_text(verdict("first" + "é" * 1000 + "last"))
    kept = (tmp_path / "mine-w2-check_a.txt").read_text(encoding="utf-8")
    assert kept.startswith("firsté")
    assert kept.endswith("élast\n")
    assert "\n... 1,909 bytes are left out ...\n" in kept
    assert len(kept.encode()) <= 150


def test_the_texts_of_a_run_are_limited_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_files, "_TEXTS_OF_A_RUN", 20 << 20)
    files = FailureFiles(tmp_path)
    assert files.keep_text(verdict("x" * (15 << 20))).startswith("the whole text: ")
    again = files.keep_text(verdict("y" * (15 << 20)))
    assert again == "the whole text is not kept: this run has kept 20 MiB of other texts"
    assert (tmp_path / "mine-w2-check_a.txt").read_bytes().startswith(b"xxx")


def test_a_text_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = FailureFiles(tmp_path / "file").keep_text(verdict("x"))
    assert said.startswith("the whole text is not kept: ")
    assert "cannot be written" in said


def test_a_short_text_needs_no_file(raising: Path) -> None:
    Path("mine.py").write_text(RAISES.replace("100_000", "10"), encoding="utf-8")
    shown = CliRunner().invoke(main, ("check", "mine.py:adapter", *WORDS))
    assert shown.exit_code == 1
    assert sorted(path.suffix for path in Path("ddpcheck-failures").iterdir()) == [".json", ".py"]
