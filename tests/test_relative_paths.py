"""Paths under the working folder are shown relative to it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpcheck.relative_paths import relative, with_relative_paths


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_under_the_working_folder_is_relative(here: Path) -> None:
    assert relative(here / "a" / "b.json") == "a/b.json"
    assert relative(f"{here}/mine.py:adapter") == "mine.py:adapter"


@pytest.mark.parametrize("path", ["/elsewhere/mine.py:adapter", "a/b.json", "my_ddp.adapter:adapter", "numpy_sockets"])
def test_another_path_stays(path: str) -> None:
    assert relative(path) == path


def test_paths_in_a_text_are_relative(here: Path) -> None:
    text = f'  File "{here}/mine.py", line 4\nlook at: {here}/a/b.py:3, {here}/.c'
    assert with_relative_paths(text) == '  File "mine.py", line 4\nlook at: a/b.py:3, .c'


def test_other_paths_in_a_text_stay(here: Path) -> None:
    text = f"{here}2/a.py /root{here}/a.py file://{here}/a.py {here}/ {here}"
    assert with_relative_paths(text) == text


def test_no_path_is_relative_to_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert with_relative_paths('File "/usr/a.py"') == 'File "/usr/a.py"'
