"""`ddpcheck.while_connected`: all processes of a command end with the connection, here two pipes of this process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfd_open")

WRAPPER = (sys.executable, "-m", "ddpcheck.while_connected")
STUBBORN = """
import os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1:]:
    if os.fork():  # the child is in a session of its own, and without a parent
        os._exit(0)
else:
    subprocess.run([sys.executable, __file__, "orphan"], start_new_session=True)
os.write(1, b"%d\\n" % os.getpid())  # at once: with PYTHONUNBUFFERED, print writes the end of the line apart
{end}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """It and its orphan ignore SIGTERM. Each prints its process id."""
    path = tmp_path / "stubborn.py"
    path.write_text(STUBBORN.format(end="time.sleep(600)"))
    return path


def leave(running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    running.stderr.close()


ENDINGS: dict[str, tuple[int, Callable[[subprocess.Popen[str]], object]]] = {
    "the connection ends": (signal.SIGHUP, leave),
    "SIGTERM": (signal.SIGTERM, lambda running: running.send_signal(signal.SIGTERM)),
    "SIGINT": (signal.SIGINT, lambda running: running.send_signal(signal.SIGINT)),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_all_processes_of_a_command_end_when(ending: str, program: Path) -> None:
    number, end = ENDINGS[ending]
    words = [*WRAPPER, sys.executable, str(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        processes = [os.pidfd_open(int(running.stdout.readline())) for _ in range(2)]
        try:
            end(running)
            assert running.wait(60) == 128 + number
            assert [bool(select.select([process], [], [], 0)[0]) for process in processes] == [True, True]
        finally:
            running.kill()
            for process in processes:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                os.close(process)


def test_all_processes_of_a_command_end_when_the_command_ends(program: Path) -> None:
    program.write_text(STUBBORN.format(end="time.sleep(600 if sys.argv[1:] else 0)"))
    done = subprocess.run([*WRAPPER, sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for process in map(int, done.stdout.split()):
        assert not Path(f"/proc/{process}").exists()


@pytest.mark.parametrize(("line", "status"), [("exit 3", 3), ("kill -KILL $$", 137), ("read x || exit 5", 5)])
def test_the_exit_status_and_the_streams_are_those_of_the_command(line: str, status: int) -> None:
    words = [*WRAPPER, "sh", "-c", f"echo out; echo err >&2; {line}"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", status)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [([], 2, "the command is missing"), (["no_such_program"], 127, "no_such_program cannot be started")],
)
def test_a_command_that_cannot_run_is_an_error(words: list[str], status: int, told: str) -> None:
    done = subprocess.run([*WRAPPER, *words], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert told in done.stderr


def test_a_file_is_no_connection(tmp_path: Path) -> None:
    with (tmp_path / "written").open("w+") as written:
        done = subprocess.run([*WRAPPER, "echo", "ran"], stdout=written, stderr=written, check=False)
    assert done.returncode == 2
    assert "must be the connection" in (tmp_path / "written").read_text()
