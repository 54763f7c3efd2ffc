"""Ends of commands: by signals, by an adapter that ends the process, without a reader, on a full disk, in any
encoding.
"""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ddpcheck.cli.exit_status import ExitStatus
from ddpcheck.launchers.mpi import find_mpi
from ddpcheck.launchers.process_handles import processes_under

ENDS_ITS_DRIVER = """
import os, signal
from pathlib import Path
from ddpcheck_implementations.numpy_sockets import adapter as right
from dataclasses import replace

if "RANK" not in os.environ:
    Path("driver").write_text(str(os.getpid()))

def connect(context):
    os.kill(int(Path("driver").read_text()), signal.{signal})
    return right.connect(context)

adapter = replace(right, name="ends its driver", connect=connect)
"""
ENDLESS = (
    ("train", "numpy_sockets", "--epochs", "100000", "--no-compare"),
    ("launch", "numpy_sockets", "-n", "2", "--run", "--epochs", "100000", "--no-compare"),
    ("audit", "endless.py"),
)
SAMPLERS = ("-w", "1", "--profile", "quick", "-c", "sampler")
QUICK = (*SAMPLERS[:-1], "check_sampler_len_matches_iteration")
pytestmark = pytest.mark.usefixtures("heard")


def ddpcheck(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options.pop("flags", ()), "-m", "ddpcheck", *arguments]
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        command,
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=100,
        **options,
    )


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_has_its_own_status_and_what_was_judged_is_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text(ENDS_ITS_DRIVER.format(signal=name))
    ended = ddpcheck(tmp_path, "check", "mine.py:adapter", "-w", "2", "--json", "results.json")
    assert ended.returncode == 128 + getattr(signal, name), ended.stderr
    assert "did not run" in ended.stdout
    assert (tmp_path / "results.json").is_file()


INTERRUPTED_IMPORT = """
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == "click":
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
from ddpcheck.__main__ import main
main()
"""


def test_an_interrupt_before_the_command_begins_has_no_traceback(tmp_path: Path) -> None:
    program = [sys.executable, "-c", INTERRUPTED_IMPORT, "list", "checks"]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ended.stdout + ended.stderr == ""


@pytest.mark.skipif(
    sys.platform != "linux" or find_mpi() is None or importlib.util.find_spec("mpi4py") is None,
    reason="needs MPI, /proc",
)
def test_an_engine_says_nothing_after_an_interrupt(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ddpcheck", "train", "numpy_mpi", "--epochs", "100000", "--no-compare"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        while not (_handles_signals(running) and _commands_below(running).count("ddpcheck.training") > 2):
            assert running.poll() is None  # mpiexec and its ranks have that word
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=100)
    assert running.returncode == ExitStatus.INTERRUPTED
    assert said.rstrip().endswith("interrupted: all ranks were ended")


def _commands_below(running: subprocess.Popen[str]) -> str:
    found = []
    for process in processes_under(running.pid):
        with suppress(OSError):
            found.append(Path(f"/proc/{process}/cmdline").read_text())
    return " ".join(found)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("command", [("check", "numpy_sockets", "-w", "2"), ("tour",)], ids=lambda words: words[0])
def test_a_second_interrupt_does_not_change_the_status(tmp_path: Path, command: tuple[str, ...]) -> None:
    words = [sys.executable, "-m", "ddpcheck", *command]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        while not _handles_signals(running):
            assert running.poll() is None
        while running.poll() is None:  # as if the keys were held down
            running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        said = running.stdout.read()
    assert running.returncode == ExitStatus.INTERRUPTED
    assert b"Traceback" not in said


def _handles_signals(running: subprocess.Popen[bytes] | subprocess.Popen[str]) -> bool:
    """Whether the command has begun, which shows in its handler of SIGTERM."""
    lines = Path(f"/proc/{running.pid}/status").read_text().splitlines()
    (caught,) = (line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("command", ["check", "bench"])
@pytest.mark.parametrize("status", [0, 1])
def test_an_adapter_that_ends_the_process_is_no_verdict(tmp_path: Path, command: str, status: int) -> None:
    (tmp_path / "mine.py").write_text(f"import os\n\nos._exit({status})\n")
    ended = ddpcheck(tmp_path, command, "mine.py:adapter")
    assert ended.returncode == ExitStatus.UNUSABLE
    assert f"os._exit({status})" in ended.stderr
    assert "mine.py, line 3" in ended.stderr


def test_doctor_tells_of_an_adapter_that_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\n\nos._exit(0)\n")
    ended = ddpcheck(tmp_path, "doctor", "mine.py:adapter")
    assert ended.returncode == 1
    assert "it called os._exit(0) in" in ended.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
@pytest.mark.parametrize("words", ENDLESS, ids=lambda words: words[0])
def test_ranks_that_train_end_with_their_command(tmp_path: Path, words: tuple[str, ...], name: str) -> None:
    number: signal.Signals = getattr(signal, name)
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "ddpcheck", *words]
    env = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as running:
        handles = [os.pidfd_open(child) for child in _children_with_ranks(running)]
        running.send_signal(number)
        running.wait(60)
    ended = [bool(select.select([handle], [], [], 30)[0]) for handle in handles]
    for handle in handles:
        os.close(handle)
    assert all(ended)
    assert not list(temporary.glob("ddpcheck*"))
    assert running.returncode == (-number if number == signal.SIGKILL else 128 + number)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torchrun is part of PyTorch")
@pytest.mark.skipif(sys.platform != "linux", reason="signals are sent on Linux")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_the_folder_of_an_agent_goes_with_its_command(tmp_path: Path, name: str) -> None:
    """The adapter's ranks send the signal when the agent and its folder exist."""
    (tmp_path / "mine.py").write_text(ENDS_ITS_DRIVER.format(signal=name))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ("check", "mine.py:adapter", "-w", "2", "--launcher", "torchrun")
    ended = ddpcheck(tmp_path, *words, env=os.environ | {"TMPDIR": str(temporary)})
    assert ended.returncode == 128 + getattr(signal, name), ended.stderr
    assert [path.name for path in temporary.iterdir() if path.name.startswith("ddpcheck")] == []


def _children_with_ranks(running: subprocess.Popen[bytes]) -> list[int]:
    """Wait until both ranks run the training program; the process ids of all children."""
    listed = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None:
        children = [int(child) for child in listed.read_text().split()]
        programs = ("ddpcheck.training", "ddpcheck.audit.record")
        lines = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
        if sum(any(name in line for name in programs) for line in lines) == 2:
            return children
    raise AssertionError("the command ended by itself")


HANGS = """
import threading
from dataclasses import replace
from ddpcheck_implementations.numpy_sockets import adapter as right

class Hangs:
    def __init__(self, right):
        self._right = right

    def __getattr__(self, name):
        return getattr(self._right, name)

    def all_reduce(self, array, op, group=None):
        threading.Event().wait()

def connect(context):
    facets = right.connect(context)
    return replace(facets, collectives=Hangs(facets.collectives))

adapter = replace(right, name="hangs", connect=connect)
"""


def test_without_a_reader_the_run_stops(tmp_path: Path) -> None:
    """The ranks of this run hang, and nothing is written that could show the closed pipe."""
    (tmp_path / "mine.py").write_text(HANGS)
    words = ("-w", "2", "-c", "check_all_reduce_sums_exactly", "--deadline", "1000")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        ended = ddpcheck(tmp_path, "check", "mine.py:adapter", *words, stdout=output)
    assert ended.returncode == ExitStatus.PIPE_CLOSED
    assert ended.stderr == ""


LOSES_ITS_READER = """
import os, sys
from ddpcheck.cli.exit_status import run
from ddpcheck.cli.console import console

def command():
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, sys.stdout.fileno())  # too late for the thread that watches the pipe
    {write}

sys.exit(run(command))
"""


@pytest.mark.parametrize("write", ["print('line', flush=True)", "console().print('line')"])
def test_a_line_that_finds_no_reader_ends_the_command(write: str) -> None:
    program = [sys.executable, "-c", LOSES_ITS_READER.format(write=write)]
    ended = subprocess.run(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=100, check=False)
    assert ended.returncode == ExitStatus.PIPE_CLOSED, ended.stderr
    assert ended.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_no_failure(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = ddpcheck(tmp_path, "check", "numpy_sockets", *QUICK, stdout=full)
    assert ended.returncode == ExitStatus.UNUSABLE
    assert "standard output cannot be written to" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_closed_standard_output_is_no_failure(tmp_path: Path) -> None:
    words = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "ddpcheck", "check", "numpy_sockets", *QUICK]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == ExitStatus.WELL, ended.stderr
    assert ended.stderr == ""


def test_a_terminal_without_utf_8_gets_ascii(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    ended = ddpcheck(tmp_path, "check", "numpy_sockets", *QUICK, env=env | ascii_only)
    assert ended.returncode == ExitStatus.WELL, ended.stderr
    assert "+ passed" in ended.stdout


def test_laws_hold_and_keep_their_sentences_without_assert_and_docstrings(tmp_path: Path) -> None:
    """-OO leaves out all that -O does."""
    flags = ["-OO"]
    ended = ddpcheck(
        tmp_path, "check", "numpy_sockets", *SAMPLERS, flags=flags, env=os.environ | {"PYTHONOPTIMIZE": ""}
    )
    assert ended.returncode == ExitStatus.WELL, ended.stderr
    listed = ddpcheck(tmp_path, "list", "checks", flags=flags)
    assert listed.stdout == ddpcheck(tmp_path, "list", "checks").stdout
    faults = ddpcheck(tmp_path, "faults", "first-metric-only", "--profile", "quick", flags=flags)
    assert faults.returncode == ExitStatus.WELL, faults.stderr


def test_a_module_in_the_working_folder_does_not_stand_in_for_one_that_the_command_imports(tmp_path: Path) -> None:
    for name in ("numpy", "hypothesis", "click"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name} of the working folder')\n")
    ended = ddpcheck(tmp_path, "list", "capabilities", "numpy_sockets")
    assert ended.returncode == ExitStatus.WELL, ended.stderr


@pytest.mark.parametrize("launcher", ["processes", "spawn", "fork"])
def test_ranks_search_the_working_folder_last(tmp_path: Path, launcher: str) -> None:
    for name in ("numpy", "json", "click", "pkgutil", "selectors", "faulthandler", "colorsys"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name} of the working folder')\n")
    # colorsys: a module that no process has imported before the adapter
    (tmp_path / "mine.py").write_text("import colorsys\n\nfrom ddpcheck_implementations.numpy_sockets import adapter\n")
    words = ("check", "mine:adapter", "-w", "2", "-c", "check_all_reduce_sums_exactly", "--profile", "quick")
    ended = ddpcheck(tmp_path, *words, "--launcher", launcher, flags=["-P"], env=os.environ | {"PYTHONSAFEPATH": ""})
    assert ended.returncode == ExitStatus.WELL, ended.stdout + ended.stderr


SWALLOWS = """
import gc, os, signal, sys, weakref

def strike():
    os.kill(os.getpid(), signal.{signal})
    for _ in range(1000):  # the handler runs here
        pass

class Destructor:
    def __del__(self):
        strike()

class Thing:
    pass

def destructor():
    Destructor()

def cycle():
    own = Destructor()
    own.own = own
    del own
    gc.collect()

def weak_reference():
    thing = Thing()
    thing.end = weakref.ref(thing, lambda _: strike())
    weakref.finalize(thing, strike)
    del thing

def catches_everything():
    try:
        strike()
    except BaseException:
        pass

def twice():
    catches_everything()
    destructor()

def other_error():
    try:
        strike()
    finally:
        raise RuntimeError("the cleaning up fails")
"""
IN_A_COMMAND = (
    SWALLOWS
    + """
from ddpcheck.cli.exit_status import run

def command():
    {how}()
    while {goes_on}:
        pass

sys.exit(run(command))
"""
)


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("how", ["destructor", "cycle", "weak_reference", "catches_everything", "twice", "other_error"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_whose_exception_is_dropped_ends_the_command(name: str, how: str, goes_on: bool) -> None:
    program = IN_A_COMMAND.format(signal=name, how=how, goes_on=goes_on)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 128 + getattr(signal, name), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


STRUCK = (
    SWALLOWS
    + """
import subprocess
from ddpcheck.cli import program

start = subprocess.Popen.__init__

def struck(*arguments, **options):
    subprocess.Popen.__init__ = start
    destructor()
    start(*arguments, **options)

subprocess.Popen.__init__ = struck
program()
"""
)
COMMANDS = (
    ("check", "numpy_sockets", *QUICK),
    ("bench", "numpy_sockets", "--quick"),
    ("train", "numpy_sockets", "--epochs", "100000"),
    ("launch", "numpy_sockets", "-n", "2", "--run", "--epochs", "100000"),
    ("audit", "train.py"),
    ("gate", "mine:adapter", "--base", "HEAD"),
    ("tour",),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_each_command_is_ended_by_a_signal_whose_exception_is_dropped(tmp_path: Path, words: tuple[str, ...]) -> None:
    if words[0] == "audit":
        pytest.importorskip("torch")
        (tmp_path / "train.py").write_text("import torch\n\nwhile True:\n    pass\n")
    if words[0] == "gate":
        (tmp_path / "mine.py").write_text("from ddpcheck_implementations.numpy_sockets import adapter\n")
        names = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        for line in (("init", "-q"), ("add", "."), (*names, "commit", "-q", "-m", "the reference")):
            subprocess.run(["git", *line], cwd=tmp_path, check=True)
    program = STRUCK.format(signal="SIGINT")
    ended = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == ExitStatus.INTERRUPTED, ended.stdout + ended.stderr
    assert "Exception ignored" not in ended.stderr
