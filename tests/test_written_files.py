"""Files that commands write are complete or unchanged; an unwritable file costs no verdict and is reported."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from ddpcheck.cli import main
from ddpcheck.job import AllReduce, Barrier, Job, TensorSpec
from ddpcheck.storage.failing_jobs import Failure, failure_file
from ddpcheck.storage.files import UnwritableFile, atomic_file, write_atomically
from ddpcheck.verdict import Diagnosis, Verdict

WRONG = """
from dataclasses import replace
from ddpcheck_implementations.faulty import faults

(fault,) = (fault for fault in faults() if fault.name == "first-metric-only")
adapter = replace(fault.adapter, name={name!r})
"""
METRICS = ("-w", "2", "-c", "check_several_metrics_keep_their_names", "--profile", "quick")


def ddpcheck(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An adapter that fails, in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(WRONG.format(name="mine"))
    Path("a-file").write_text("kept")
    return "mine.py:adapter"


def test_a_failure_is_told_where_its_files_cannot_be_written(wrong: str) -> None:
    shown = ddpcheck("check", wrong, *METRICS, "--failures", "a-file/below")
    assert shown.exit_code == 1, shown.output
    assert "failing Jobs are not kept: a-file/below" in " ".join(shown.output.split())
    assert "Traceback" not in shown.output


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_failure_is_told_where_the_system_refuses_its_files(
    wrong: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refused)
    shown = ddpcheck("check", wrong, *METRICS, "--json", "r.json")
    assert shown.exit_code == 1, shown.output
    said = " ".join(shown.output.split())
    assert "failing Jobs are not kept" in said
    assert f"r.json cannot be written: {os.strerror(number)}" in said
    assert "Traceback" not in said
    assert sorted(path.name for path in Path.cwd().rglob("*.json")) == []


def test_folders_that_do_not_exist_are_made(wrong: str) -> None:
    files = ("--json", "new/r.json", "--junit", "new/j.xml", "--markdown", "new/r.md", "--failures", "new/failures")
    shown = ddpcheck("check", wrong, *METRICS, *files)
    assert shown.exit_code == 1, shown.output
    assert {path.name for path in Path("new").iterdir()} == {"r.json", "j.xml", "r.md", "failures"}


IMPOSSIBLE = ("a-file/below.json", "n" * 300, "/dev/full")


@pytest.mark.parametrize("place", IMPOSSIBLE, ids=["in a file", "too long", "full"])
def test_a_script_that_cannot_be_written_is_a_sentence_after_the_results(wrong: str, place: str) -> None:
    Failure("numpy_sockets", 2, "check_all_reduce_sums_exactly", Job(2, (AllReduce(TensorSpec((3,))),))).save(
        Path("failure.json")
    )
    shown = ddpcheck("replay", "failure.json", "--script", place)
    assert shown.exit_code == 2, shown.output
    assert "now passes with this Job" in shown.output
    assert f"Error: {place} cannot be written" in shown.output
    assert "stand-alone: python" not in shown.output


def test_a_script_is_written_into_a_new_folder(wrong: str) -> None:
    Failure("numpy_sockets", 2, "check_all_reduce_sums_exactly", Job(2, (AllReduce(TensorSpec((3,))),))).save(
        Path("failure.json")
    )
    shown = ddpcheck("replay", "failure.json", "--script", "new/made.py")
    assert shown.exit_code == 0, shown.output
    assert Path("new/made.py").is_file()


@pytest.mark.parametrize("option", ["--json", "--junit", "--markdown"])
@pytest.mark.parametrize("place", IMPOSSIBLE, ids=["in a file", "too long", "full"])
def test_a_file_that_cannot_be_written_is_a_sentence_after_the_results(wrong: str, option: str, place: str) -> None:
    shown = ddpcheck("check", "numpy_sockets", "-w", "1", "-c", "sampler", "--profile", "quick", option, place)
    assert shown.exit_code == 2
    assert "passed" in shown.output
    assert f"Error: {place} cannot be written" in shown.output
    assert Path("a-file").read_text() == "kept"


def test_other_files_are_written_all_the_same(wrong: str) -> None:
    shown = ddpcheck("check", wrong, *METRICS, "--json", "a-file/below", "--junit", "junit.xml")
    assert shown.exit_code == 1, shown.output
    assert Path("junit.xml").is_file(), (shown.output, shown.exception)


def test_a_report_does_not_write_over_what_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    measured = ddpcheck("bench", "numpy_sockets", "-w", "1", "--collectives", "barrier", "--quick", "--json", "b.json")
    assert measured.exit_code == 0, measured.output
    before = Path("b.json").read_bytes()
    shown = ddpcheck("report", "b.json", "-o", "./b.json")
    assert shown.exit_code == 2
    assert "would overwrite the input file" in shown.output
    assert Path("b.json").read_bytes() == before


def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_atomically(path, "old")

    def breaks_off() -> None:
        with atomic_file(path) as file:
            file.write(b"half of the new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        breaks_off()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from ddpcheck.storage.files import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half of the new")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_write_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_atomically(path, "old")
    ended = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_a_device_is_written_to_as_it_is(tmp_path: Path) -> None:
    write_atomically(Path(os.devnull), "gone")
    with pytest.raises(UnwritableFile, match="/dev/full cannot be written: No space left"):
        write_atomically(Path("/dev/full"), "x" * 100_000)


@given(st.text(st.characters(), max_size=400))
@example("x" * 300)
@example("é" * 300)
def test_every_name_of_an_adapter_gives_a_file_that_can_be_written(name: str) -> None:
    verdict = Verdict(name, 2, "check_a", "sums", "failed", diagnosis=Diagnosis("wrong"), job=Job(2, (Barrier(),)))
    path = failure_file(Path("failures"), verdict)
    assert path is not None
    assert path.parent == Path("failures")
    assert len(path.name.encode()) < 255
    assert path.name.isprintable()
