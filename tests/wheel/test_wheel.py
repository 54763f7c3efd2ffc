"""The built wheel in an empty environment, used from a folder that is not the source tree.

Run by `tox -e wheel`; pip needs a package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = ROOT / "tests" / "minimal_adapter.py"

pytest.importorskip("build", reason="builds a wheel: pip install build, or tox -e wheel")


@dataclass
class Installed:
    """A virtual environment with the wheel, and a working folder beside it."""

    bin: Path
    folder: Path

    def run(self, *command: str, status: int = 0) -> str:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=kept,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(place), str(ROOT)], check=True)
    (wheel,) = place.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
    folder = place / "elsewhere"
    folder.mkdir()
    found = Installed(place / "venv" / "bin", folder)
    found.run("pip", "install", "--quiet", str(wheel))
    (folder / "my_ddp.py").write_text(MINIMAL.read_text())
    return found


def test_only_our_names_are_at_the_top(installed: Installed) -> None:
    code = (
        "import sysconfig, pathlib; print(*(p.name for p in pathlib.Path(sysconfig.get_path('purelib')).glob('ddp*')))"
    )
    names = installed.run("python", "-c", code).split()
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "ddpcheck",
        "ddpcheck_implementations",
        "ddpcheck_properties",
        "ddpcheck_benchmarks",
        "ddpcheck_reports",
    }
    files = installed.run("pip", "show", "--files", "ddpcheck").partition("Files:")[2].split()
    tops = {file.partition("/")[0] for file in files if not file.startswith("..")}
    assert all(top.startswith("ddpcheck") for top in tops), tops
    assert not any("tests" in Path(file).parts for file in files)


def test_command_line(installed: Installed) -> None:
    shown = installed.run("ddpcheck", "check", "my_ddp:adapter", "-w", "1,2", "--profile", "quick")
    assert "✓ passed" in shown
    shown = installed.run("ddpcheck", "check", "my_ddp:forgetful", "-w", "2", "--profile", "quick", status=1)
    assert "run again: ddpcheck replay ddpcheck-failures/" in shown


def test_pytest_plugin(installed: Installed) -> None:
    (installed.folder / "test_mine.py").write_text(
        "from ddpcheck import parametrize_with_checks\n"
        "from my_ddp import adapter\n"
        "@parametrize_with_checks([adapter], world_sizes=[1, 2])\n"
        "def test_mine(check): check()\n"
    )
    mine = ["python", "-m", "pytest", "-q", "--ddp-profile=quick", "-W", "error"]
    assert "passed" in installed.run(*mine, "test_mine.py")
    shown = installed.run(
        *mine, "--pyargs", "ddpcheck_properties", "--ddp-adapter=my_ddp:adapter", "--ddp-world-sizes=2"
    )
    assert "passed" in shown


def test_python_api(installed: Installed) -> None:
    code = (
        "import sys, ddpcheck, my_ddp; found = ddpcheck.check_adapter(my_ddp.adapter, [2], profile='quick');"
        "print(all(v.ok for v in found), any(v.jobs for v in found), 'torch' in sys.modules)"
    )
    assert installed.run("python", "-c", code).split() == ["True", "True", "False"]


def test_missing_parts_are_reported(installed: Installed) -> None:
    shown = installed.run("ddpcheck", "doctor")
    assert "pip install 'ddpcheck[torch]'" in shown
    shown = installed.run("ddpcheck", "check", "torch_ddp", "-w", "1", status=2)
    assert "not installed: torch; install with: pip install torch" in shown
