"""Grading: limits hold, no process is left, a submission's failure costs only its own points, and points add up."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from documented import ROOTS

from ddpcheck import Diagnosis, Verdict
from ddpcheck.causes import ranks
from ddpcheck.cli import main
from ddpcheck.cli.grade import as_csv
from ddpcheck.grading.limited_command import CommandResult, Limits, run_limited
from ddpcheck.grading.points import Submission, grades, read_weights
from ddpcheck.storage.files import UnreadableFile

CODE = Path(__file__).parents[1] / "docs" / "how-to" / "code"
LIMITS = Limits(60, 4 << 30, 1 << 20)


def ended(folder: Path, code: str, limits: Limits = LIMITS) -> CommandResult:
    return run_limited([sys.executable, "-c", code], folder, folder / "log.txt", limits)


def test_a_command_that_ends_by_itself(tmp_path: Path) -> None:
    found = ended(tmp_path, "print('done'); raise SystemExit(3)")
    assert (found.status, found.in_time, found.left_behind) == (3, True, 0)
    assert (tmp_path / "log.txt").read_text() == "done\n"


def test_a_command_that_loops_is_ended(tmp_path: Path) -> None:
    found = ended(tmp_path, "while True: pass", Limits(1, 4 << 30, 1 << 20))
    assert not found.in_time


def test_output_without_end_ends_it_or_is_cut(tmp_path: Path) -> None:
    found = ended(tmp_path, "while True: print('x' * 1000)")
    assert found.in_time
    assert found.status
    assert (tmp_path / "log.txt").stat().st_size <= 1 << 20


def test_memory_is_limited(tmp_path: Path) -> None:
    found = ended(tmp_path, "bytearray(8 << 30)")
    assert found.status == 1
    assert "MemoryError" in (tmp_path / "log.txt").read_text()


def test_no_process_remains_even_in_another_session(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "ready, told = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.setsid(); os.write(told, b'x'); time.sleep(3600)\n"
        "os.read(ready, 1)\n"
    )
    found = ended(tmp_path, code)
    assert (found.status, found.in_time, found.left_behind) == (0, True, 1)


WRONG = Diagnosis("got 2, but should be 1", (ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,)),), "the division")
RIGHT = tuple(
    Verdict("s", size, check, family, "passed")
    for size in (1, 2)
    for check, family in (("check_a", "sums"), ("check_b", "sums"), ("check_c", "means"))
)
HALF = tuple(
    Verdict("s", v.world_size, v.check, v.family, "failed", diagnosis=WRONG)
    if (v.check, v.world_size) == ("check_b", 2)
    else v
    for v in RIGHT
)
SUBMISSIONS = (
    Submission("ada", RIGHT, 1.0),
    Submission("bob", HALF, 2.0),
    Submission("eve", RIGHT[:2], 3.0, "it took more than 3 s, and was ended"),
    Submission("=1+1", (), 4.0, "no verdict"),
)


def test_points_are_shares_of_weights() -> None:
    found = grades(SUBMISSIONS, {"sums": 10, "means": 5, "gradients": 2}, "none")
    assert [dict(grade.points) for grade in found] == [
        {"sums": 10, "means": 5, "gradients": 0},
        {"sums": 5, "means": 5, "gradients": 0},
        {"sums": 0, "means": 0, "gradients": 0},
        {"sums": 0, "means": 0, "gradients": 0},
    ]
    assert [grade.total for grade in grades(SUBMISSIONS, {}, "none")] == [2, 1.5, 0, 0]


def test_hints_tell_as_much_as_was_asked_for() -> None:
    assert [grades(SUBMISSIONS, {}, hints)[1].hint for hints in ("none", "family", "cause")] == [
        "",
        "sums",
        f"sums: {ranks.LEFT_COLLECTIVE_EARLY(ranks=(1,)).headline}",
    ]


def test_the_table_as_csv_holds_no_formula() -> None:
    rows = list(csv.DictReader(as_csv(grades(SUBMISSIONS, {}, "none")).splitlines()))
    assert [row["submission"] for row in rows] == ["ada", "bob", "eve", "'=1+1"]
    assert rows[1]["sums"] == "0.500"


@pytest.mark.parametrize("text", ["", "[points]\nsums = 'much'\n", "[points]\nsums = -1\n", "points = 3\n", "[poi"])
def test_invalid_weights_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "weights.toml").write_text(text)
    with pytest.raises(UnreadableFile, match="should have a table"):
        read_weights(tmp_path / "weights.toml")


def test_a_folder_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the docs: one submission is right, one is wrong at three ranks, and one ends the process that
    imports it.
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((*ROOTS, str(CODE))))
    words = [
        "grade",
        str(CODE / "submissions"),
        "--template",
        str(CODE / "template.py"),
        "-w",
        "3",
        "-c",
        "sums_exactly",
    ]
    done = CliRunner().invoke(main, [*words, "--hints", "cause", "--csv", str(tmp_path / "grades.csv")])
    assert done.exit_code == 0, done.output
    rows = {row["submission"]: row for row in csv.DictReader((tmp_path / "grades.csv").read_text().splitlines())}
    assert [rows[name]["points"] for name in ("ada", "bob", "eve")] == ["1.000", "0.000", "0.000"]
    assert rows["bob"]["hint"].startswith("collectives: The values of rank")
    assert "ended with status" in rows["eve"]["note"]
    assert "importing template.py " in rows["eve"]["note"]


def test_an_interrupted_run_grades_the_submissions_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(file: Path, *_: object) -> Submission:
        if file.stem == "bob":
            raise KeyboardInterrupt
        return SUBMISSIONS[0]

    monkeypatch.setattr("ddpcheck.cli.grade.check_submission", checked)
    words = ["grade", str(CODE / "submissions"), "--template", str(CODE / "template.py"), "-w", "2"]
    done = CliRunner().invoke(main, [*words, "--csv", str(tmp_path / "grades.csv")])
    assert done.exit_code == 130
    assert "interrupted: 2 of 3 submissions were not checked" in done.output
    rows = list(csv.DictReader((tmp_path / "grades.csv").read_text().splitlines()))
    assert [row["submission"] for row in rows] == [SUBMISSIONS[0].name]


def test_a_folder_without_submissions_is_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["grade", str(tmp_path), "--template", str(CODE / "template.py")])
    assert done.exit_code == 2
    assert "holds no submission" in done.output
