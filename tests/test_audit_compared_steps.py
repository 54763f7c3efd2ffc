"""Which steps are looked at after the recorded ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpcheck.audit.recorded_process import Run, RunSettings
from ddpcheck.audit.recorder.compared_steps import ComparedSteps


class NoJournal:
    """In place of the file that a Run opens."""

    def __init__(self, folder: Path) -> None:
        pass

    def note(self, kind: str, **fields: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpcheck.audit.recorded_process.JournalWriter", NoJournal)


def started(folder: Path, steps: int = 6, *, resumes: bool = False) -> tuple[Run, ComparedSteps]:
    run = Run(RunSettings(str(folder), "real", 2, steps, 100000, resumes=resumes), 0, "")
    return run, ComparedSteps(run)


def looked_at(run: Run, looks: ComparedSteps, steps: int) -> list[int]:
    """The steps that are looked at, of so many that all make the same calls."""
    found = []
    for _ in range(steps):
        if looks.step(0, "train.py:9"):
            found.append(run.step)
        run.step += 1
    return found


def test_later_steps_are_looked_at_in_a_geometric_series(tmp_path: Path) -> None:
    run, looks = started(tmp_path)
    assert looked_at(run, looks, 100) == [0, 1, 2, 3, 4, 5, 6, 12, 24, 48, 96]
    run, looks = started(tmp_path, 0)
    assert looked_at(run, looks, 40)[-3:] == [8, 16, 32]
    run, looks = started(tmp_path, resumes=True)
    assert len(looked_at(run, looks, 40)) == 40


def test_a_step_with_new_calls_is_looked_at_and_the_next_one(tmp_path: Path) -> None:
    run, looks = started(tmp_path)
    looked_at(run, looks, 50)
    run.note("backward", line="train.py:5", sync=[False])
    assert looks.step(0, "train.py:9")
    run.stepped()
    assert looks.step(0, "train.py:9")
    run.stepped()
    assert not looks.step(0, "train.py:9")


def test_endless_changes_are_not_all_looked_at(tmp_path: Path) -> None:
    run, looks = started(tmp_path)
    looked_at(run, looks, 100)
    found = 0
    for number in range(200):
        found += looks.step(0, f"train.py:{number}")
        run.step += 1
    assert found < 40


def test_epochs_are_looked_at_when_the_last_look_is_long_ago(tmp_path: Path) -> None:
    run, looks = started(tmp_path)
    looked_at(run, looks, 20)
    looks.epoch()
    assert looks.now()
    looked_at(run, looks, 3)
    looks.epoch()
    assert not looks.now()
    looked_at(run, looks, 100)
    found = []
    for _ in range(200):
        looks.epoch()  # epochs of one step
        found += looked_at(run, looks, 1)
    assert len(found) < 20
