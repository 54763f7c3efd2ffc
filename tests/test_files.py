"""Files of a Job that ranks write are recorded, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddpcheck.execution.watched_files import SLOW_FILE, SLOW_FOLDER, watched
from ddpcheck.scratch_folder import scratch_of
from ddpcheck.session import Session
from ddpcheck_implementations.numpy_sockets import adapter
from ddpcheck_properties.training.checkpoints import check_checkpoint_files_have_one_writer


def test_files_opened_for_writing_are_seen_by_path(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with watched(str(folder)) as written:
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "a").write_text("a")
        os.close(os.open(folder / "b", os.O_RDWR | os.O_CREAT))
        (folder / "b").write_text("b")
        (folder / "b").read_text()
        (tmp_path / "elsewhere").write_text("c")
    assert written == {"deep/a": True, "b": True}


def test_reading_is_not_writing_and_nothing_is_seen_afterwards(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with watched(str(tmp_path)) as written:
        (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_text("b")
    assert written == {}


def test_files_that_stay_empty_are_told_from_those_with_something_in_them(tmp_path: Path) -> None:
    with watched(str(tmp_path)) as written:
        (tmp_path / "lock").touch()
        (tmp_path / "half").write_text("a")
        (tmp_path / "half").rename(tmp_path / "whole")
    assert written == {"lock": False, "half": True}


def test_threads_of_a_rank_are_seen_too(tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / "a").write_text("a")

    with watched(str(tmp_path)) as written:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert written == {"a": True}


def test_a_slow_disk_takes_its_time_before_it_does_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with watched(str(tmp_path / "folder"), slow=True):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "folder" / "a").write_text("a")
        (tmp_path / "elsewhere").write_text("a")
    assert slept == [SLOW_FOLDER, SLOW_FILE]


COMMAND = """
import sys, tempfile
from ddpcheck import cli
sys.argv = ["ddpcheck", "--version"]
cli._command_line()
tempfile.TemporaryFile()
"""
WATCHES = """
import os, sys

def see(event, arguments):
    if event == "open" and str(arguments[0]).startswith(os.path.join(os.environ["TMPDIR"], "")):
        with open(os.environ["SEEN"], "a") as seen:
            print(arguments[0], file=seen)

sys.addaudithook(see)
"""


@pytest.fixture
def names_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the names that programs write in their temporary folder; absent if they write none."""
    for name in ("seen", "temporary", "program"):
        (tmp_path / name).mkdir()
    (tmp_path / "program/sitecustomize.py").write_text(WATCHES)
    monkeypatch.syspath_prepend(tmp_path / "program")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen/names"))
    run_watched(tmp_path, "import tempfile\ntempfile.TemporaryFile()")
    names = tmp_path / "seen/names"
    assert names.read_text()  # the watch sees what it must
    names.unlink()
    return names


def run_watched(folder: Path, script: str) -> None:
    path = os.pathsep.join((str(folder / "program"), os.environ.get("PYTHONPATH", "")))
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": path})


def test_a_rank_that_starts_writes_no_temporary_file(names_written: Path) -> None:
    """It may be killed at any moment, and would leave the file."""
    with Session(adapter, 2) as session:
        session.start()
        assert not names_written.exists(), names_written.read_text()


def test_a_command_writes_no_trial_file(tmp_path: Path, names_written: Path) -> None:
    run_watched(tmp_path, COMMAND)
    assert not names_written.exists(), names_written.read_text()


@pytest.mark.parametrize("full", [{"f_bavail": 0}, {"f_favail": 0, "f_files": 9}])
def test_files_of_a_session_are_where_there_is_room(
    full: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert scratch_of("secret").parent == tmp_path
    there = {"f_bavail": 9, "f_favail": 0, "f_files": 0}
    monkeypatch.setattr(
        os, "statvfs", lambda place: SimpleNamespace(**there | (full if str(place) == str(tmp_path) else {}))
    )
    assert scratch_of("secret").parent == Path("/tmp")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    assert scratch_of("secret").parent == Path("/tmp")


def test_a_session_leaves_no_files_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Path] = []

    def remembered(secret: str) -> Path:
        places.append(scratch_of(secret))
        return places[-1]

    monkeypatch.setattr("ddpcheck.ranks.world.scratch_of", remembered)
    with Session(adapter, 2) as session:
        check_checkpoint_files_have_one_writer(session)
        assert all(place.exists() for place in places)
        assert [place.stat().st_mode & 0o777 for place in places] == [0o700]
    assert len(places) == 1
    assert not places[0].exists()
