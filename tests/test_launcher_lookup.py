"""Launchers register by entry points: a launcher of another package is found by its name, and errors name a broken
one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpcheck.running.launcher_lookup import description, installed_launchers, launcher_named

OWN_LAUNCHER = '''
from ddpcheck import Processes

def noisy():
    """Child processes that are announced."""
    print("started by another package's launcher")
    return Processes()

def broken():
    raise RuntimeError("no licence")
'''
ENTRY_POINTS = "[ddpcheck.launchers]\nnoisy = ownlaunch:noisy\nbroken = ownlaunch:broken\nabsent = ownlaunch:absent\n"


@pytest.fixture
def another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the search path with a distribution that offers three launchers."""
    (tmp_path / "ownlaunch.py").write_text(OWN_LAUNCHER)
    info = tmp_path / "ownlaunch-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ownlaunch\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_every_launcher_of_ours_is_described() -> None:
    ours = {"processes", "mpiexec", "torchrun", "spawn", "fork", "forkserver"}
    assert ours <= set(installed_launchers())
    assert all(description(name).endswith(".") and launcher_named(name).name == name for name in ours)


def test_a_misspelt_name_suggests_the_right_one() -> None:
    with pytest.raises(ValueError, match="did you mean torchrun"):
        launcher_named("torchrum")


@pytest.mark.parametrize(("name", "reason"), [("broken", "RuntimeError: no licence"), ("absent", "ownlaunch:absent")])
def test_a_launcher_that_cannot_be_made_is_named(another_package: Path, name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as error:
        launcher_named(name)
    assert repr(name) in str(error.value)


def ddpcheck(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with the other package on its search path."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "ddpcheck", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
    )


def test_a_launcher_of_another_package_starts_ranks(another_package: Path) -> None:
    check = ("check", "numpy_sockets", "-c", "check_barrier_waits_for_every_rank", "-w", "2", "--launcher", "noisy")
    run = ddpcheck(another_package, *check)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "started by another package's launcher" in run.stdout


def test_a_broken_launcher_does_not_end_the_list(another_package: Path) -> None:
    run = ddpcheck(another_package, "list", "launchers")
    assert run.returncode == 0, run.stderr
    assert "no licence" in run.stdout
