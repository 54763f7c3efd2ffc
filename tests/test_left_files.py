"""Files that ranks leave: the search for them makes none."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpcheck.execution.rank_failures import left
from ddpcheck.job import Job, Left
from ddpcheck.operations.start import OWN_FOLDER


def test_the_search_for_left_files_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tempfile.gettempdir() writes a trial file, which another rank could see."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(OWN_FOLDER, "1")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", lambda: pytest.fail("a trial file was written"))
    (tmp_path / "left").touch()
    job = Job(1, (Left(),))
    state: Any = SimpleNamespace(scratch=tmp_path / "scratch", rank=0, job=job, named_memory=set())
    assert left(state, Left())["files"] == ["left", "scratch"]
