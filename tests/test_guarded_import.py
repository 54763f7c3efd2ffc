"""Modules of adapters that do not end, that end the process, or that print much during their import."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpcheck.cli import main
from ddpcheck.contract import Capabilities, CollectivePromises, ReplicaPromises
from ddpcheck.running.adapter_lookup import UnusableAdapter, resolve
from ddpcheck.running.guarded_import import guarded_import

MINIMAL = f"{Path(__file__).parent / 'minimal_adapter.py'}:adapter"


def told(tmp_path: Path, text: str, seconds: float = 60.0) -> str:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(UnusableAdapter) as caught:
        resolve(f"{file}:adapter", seconds)
    return str(caught.value)


ENDLESS = {
    "loop": "while True: pass",
    "caught": "while True:\n    try:\n        x = 1\n    except BaseException:\n        pass",
    "sleep": "import time\ntime.sleep(1e9)",
    "lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "C": "import ctypes\nlock = ctypes.PyDLL(None)\nwhile True: lock.sleep(1 << 30)",
}
"""The last holds the interpreter's lock: no other thread runs, and no signal is handled."""


@pytest.mark.parametrize("name", ENDLESS)
def test_an_import_that_does_not_end_is_ended_with_its_line(tmp_path: Path, name: str) -> None:
    before, timed = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    lines = ENDLESS[name].splitlines()
    text = told(tmp_path, ENDLESS[name] + "\n", 0.5)
    assert "mine.py was ended: it did not end within 0.5 s, and stood at" in text
    assert "mine.py, line " in text
    if name != "caught":
        assert f"mine.py, line {len(lines)}: {lines[-1]}; " in text
    assert signal.getsignal(signal.SIGALRM) is before
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) is timed


def test_an_import_that_does_not_end_in_this_process_only_is_ended(tmp_path: Path) -> None:
    text = told(tmp_path, f"import os\nwhile os.getpid() == {os.getpid()}: pass\n", 0.5)
    assert "it did not end within 0.5 s, and stood at" in text


@pytest.mark.parametrize("name", ["loop", "sleep", "lock", "C"])
def test_other_adapters_are_judged_if_an_import_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("ddpcheck.running.plan.IMPORT_SECONDS", 2.0)
    resolve(MINIMAL)  # which may take longer than the limit
    (tmp_path / "endless.py").write_text(ENDLESS[name] + "\n")
    options = ["-w", "1", "-c", "check_all_reduce_sums_exactly", "--profile", "quick", "--failures", str(tmp_path)]
    result = CliRunner().invoke(main, ["check", f"{tmp_path}/endless.py:adapter", MINIMAL, *options])
    assert result.exit_code == 2
    assert "2 passed" in result.output
    assert "endless.py was ended: it did not end within 2 s, and stood at" in result.output


def test_an_import_that_ends_the_process_does_not(tmp_path: Path) -> None:
    text = told(tmp_path, "import os\nos._exit(3)\n")
    assert "it called os._exit(3) in" in text
    assert "mine.py, line 2" in text
    assert "SystemExit: 4" in told(tmp_path, "import sys\nsys.exit(4)\n")


def test_what_an_import_prints_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(tmp_path, "print('a' * 600_000)\nraise ValueError('b' * 600_000)\n")
    shown = capsys.readouterr().out
    assert len(shown) < 3000
    assert "598001 more characters were cut" in shown
    assert len(text) < 3000


def test_an_adapter_that_cannot_be_imported_does_not_end_the_run(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('no cable')\n")
    options = ["-w", "1", "-c", "check_all_reduce_sums_exactly", "--profile", "quick", "--failures", str(tmp_path)]
    result = CliRunner().invoke(main, ["check", f"{broken}:adapter", MINIMAL, *options])
    assert result.exit_code == 2
    assert "2 passed" in result.output
    assert "Error: not checked: importing" in result.output
    assert "no cable" in result.output


def test_a_misspelt_promise_names_the_right_one() -> None:
    with pytest.raises(
        TypeError,
        match=r"ReplicaPromises has no promise 'no_snc'; did you mean 'no_sync' of ReplicaPromises\.replica_methods\?",
    ):
        ReplicaPromises(no_snc=True)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match="Capabilities has no promise 'clipping'; it is a promise of ReplicaPromises"):
        Capabilities(clipping=True)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError, match=r"Capabilities has no promise 'replic'; did you mean 'replica'\?"):
        Capabilities(replic=ReplicaPromises())  # type: ignore[call-arg]  # on purpose
    with pytest.raises(
        TypeError,
        match=r"CollectivePromises has no promise 'no_sync'; it is a promise of ReplicaPromises\.replica_methods",
    ):
        CollectivePromises(no_sync=True)  # type: ignore[call-arg]  # on purpose


def test_a_timer_of_the_caller_goes_on() -> None:
    before = signal.setitimer(signal.ITIMER_REAL, 250.0)
    try:
        with guarded_import("mine", 60.0):
            assert signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
        assert 60.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 250.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
