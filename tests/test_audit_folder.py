"""The folder of an audit is removed however the audit ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.audit import script_runs

AUDIT = """
import os, signal
from ddpcheck.audit.script_runs import audited
with audited() as folder:
    os.write(1, b"%s\\n" % str(folder).encode())
    signal.pause()
"""
FAILS_FIRST = """#!/bin/sh
if [ -e "{seen}" ]; then exec {rm} "$@"; fi
touch "{seen}"
exit 1
"""


def test_after_a_kill_the_folder_is_removed_although_a_rank_still_writes_to_it(tmp_path: Path) -> None:
    """A file that is added meanwhile makes rm fail; here, its first call fails."""
    remover = tmp_path / "rm"
    remover.write_text(FAILS_FIRST.format(seen=tmp_path / "seen", rm=shutil.which("rm")), encoding="utf-8")
    remover.chmod(0o700)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    audit = subprocess.Popen(
        [sys.executable, "-c", AUDIT], stdout=subprocess.PIPE, text=True, env=os.environ | {"PATH": path}
    )
    assert audit.stdout is not None
    with audit.stdout:
        folder = Path(audit.stdout.readline().rstrip())
        (folder / "journal").touch()
        audit.send_signal(signal.SIGKILL)
        audit.wait(20)
        audit.stdout.read()  # ends with the process that removes the folder
    assert (tmp_path / "seen").exists()
    assert not folder.exists()


def test_a_kill_before_the_folder_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that removes the folder starts first."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before: list[Path] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        before.extend(tmp_path.iterdir())
        return popen(*arguments, **options)

    popen = subprocess.Popen
    monkeypatch.setattr(script_runs.subprocess, "Popen", start)
    with script_runs.audited() as folder:
        assert not before
        assert list(tmp_path.iterdir()) == [folder]
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.iterdir())
