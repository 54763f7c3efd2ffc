"""Releases: equal sources give equal bytes, and the sdist contains everything that its wheel and tests need.

Run by `tox -e supply`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("build", reason="builds a wheel: pip install build, or tox -e supply")


def build(source: Path, to: Path) -> dict[str, str]:
    """Build an sdist and a wheel; returns their names and digests."""
    fixed = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(to), str(source)], check=True, env=fixed)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in to.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    to = tmp_path_factory.mktemp("built")
    return to, build(ROOT, to)


def test_two_builds_are_equal(built: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    assert build(ROOT, tmp_path) == built[1]


def test_the_sdist_gives_the_same_wheel_and_holds_the_tests(built: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    (archive,) = built[0].glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = build(source, tmp_path / "again")
    (wheel,) = (name for name in again if name.endswith(".whl"))
    assert again[wheel] == built[1][wheel]
    tests = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith(".")}
    assert sorted(path for path in tests if not (source / path).is_file()) == []
