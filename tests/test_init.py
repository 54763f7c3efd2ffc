"""Adapters that `ddpcheck init` writes: they can be checked unchanged, or name the parts to fill in."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddpcheck.cli import main
from ddpcheck.running.adapter_templates import KINDS


def written(tmp_path: Path, kind: str) -> Path:
    file = tmp_path / "my_adapter.py"
    result = CliRunner().invoke(main, ["init", str(file), "--kind", kind])
    assert result.exit_code == 0, result.output
    assert ("--level basic" in result.output) == (kind != "trainer"), "no basic check applies to a trainer"
    return file


def checked(file: Path, *words: str) -> Result:
    options = ["-w", "2", "--level", "basic", "--profile", "quick", "--failures", str(file.parent / "failures")]
    return CliRunner().invoke(main, ["check", f"{file}:adapter", *options, *words])


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_what_is_written_passes(tmp_path: Path, kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch")
    checks = {"torch": "check_gradients_equal_the_large_batch_exactly", "numpy": "all_reduce"}
    result = checked(written(tmp_path, kind), "-c", checks[kind])
    assert result.exit_code == 0, result.output
    assert "my_adapter, 2 ranks" in result.output


def test_a_trainer_says_what_to_fill_in(tmp_path: Path) -> None:
    result = checked(
        written(tmp_path, "trainer"), "-c", "check_training_run_matches_one_process", "--level", "standard"
    )
    assert result.exit_code == 1
    assert "my_adapter.py, train(): build task.model in your framework" in result.output


@pytest.mark.parametrize("kind", KINDS)
def test_each_place_to_fill_in_is_marked(kind: str) -> None:
    text = KINDS[kind]("mine")
    assert text.count("FILL IN") >= 2
    assert "NAME" not in text
    compile(text, "mine.py", "exec")


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    file = written(tmp_path, "numpy")
    result = CliRunner().invoke(main, ["init", str(file)])
    assert result.exit_code == 2
    assert "exists; --force overwrites it" in result.output
