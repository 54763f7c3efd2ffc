"""Resources that the machine refuses are no fault of the adapter: files, memory, processes, ports, loopback network."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from ddpcheck import Session, StartFailed, check_adapter, refused_resources, run_checks
from ddpcheck.causes import machine
from ddpcheck.launchers import ports
from ddpcheck.launchers.command_launcher import CommandLauncher
from ddpcheck.launchers.multiprocess import Method, Multiprocessing
from ddpcheck.refused_resources import cause_in_output, refusal_cause, refused_resource
from ddpcheck.running.check_runner import Settings
from ddpcheck.verdict import Verdict

DENIED = """
import os, resource
from dataclasses import replace
import numpy as np
from ddpcheck_implementations.numpy_sockets import adapter as right

def connect(context):
    found = right.connect(context)

    class Reduces:
        def __getattr__(self, name):
            return getattr(found.collectives, name)

        def all_reduce(self, array, op="sum", **options):
            if context.rank == 1:
                if "{resource}" == "files":
                    used = max(map(int, os.listdir("/proc/self/fd")))
                    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))
                    kept = [os.dup(0) for _ in range(used + 2)]
                if "{resource}" == "memory":
                    with open("/proc/self/statm") as statm:
                        room = int(statm.read().split()[0]) * resource.getpagesize() + (64 << 20)
                    resource.setrlimit(resource.RLIMIT_AS, (room, room))
                    np.empty(1 << 30, np.uint8)
                if "{resource}" == "disk":
                    with open("/dev/full", "w") as full:
                        full.write("x" * 100000)
            return found.collectives.all_reduce(array, op, **options)

    return replace(found, collectives=Reduces())

adapter = replace(right, name="denied", connect=connect)
"""
WARNING = """
from dataclasses import replace
import numpy as np
from ddpcheck_implementations.numpy_sockets import adapter as right

def connect(context):
    found = right.connect(context)

    class Reduces:
        def __getattr__(self, name):
            return getattr(found.collectives, name)

        def all_reduce(self, array, op="sum", **options):
            np.float64(np.inf) - np.float64(np.inf)
            return found.collectives.all_reduce(array, op, **options)

    return replace(found, collectives=Reduces())

adapter = replace(right, name="warning", connect=connect)
"""
CHECK = "check_all_reduce_sums_exactly"


def verdict_of(folder: Path, text: str) -> Verdict:
    (folder / "mine.py").write_text(text)
    found = check_adapter(f"{folder / 'mine.py'}:adapter", world_sizes=[2], checks=[CHECK], profile="quick")
    return next(verdict for verdict in found if verdict.check == CHECK)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and /dev/full")
@pytest.mark.parametrize("resource", ["files", "memory", "disk"])
def test_a_resource_that_is_refused_to_a_rank_is_a_cause_of_its_own(tmp_path: Path, resource: str) -> None:
    verdict = verdict_of(tmp_path, DENIED.format(resource=resource))
    assert verdict.status == "unknown"
    assert verdict.diagnosis is not None
    assert [cause.id for cause in verdict.diagnosis.causes] == [machine.SYSTEM_REFUSES_RESOURCE.id]
    assert "rank 1 was refused a resource in operation 0" in verdict.diagnosis.headline


def test_a_warning_of_values_that_are_not_finite_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert verdict_of(tmp_path, WARNING).status == "passed"


def test_a_request_for_absurd_memory_is_the_implementations_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not refused_resource(MemoryError())
    monkeypatch.setattr(refused_resources, "getrlimit", lambda limit: (1 << 30, 1 << 30))
    assert "ENOMEM" in refused_resource(MemoryError())


def test_only_system_errors_count_as_refusals() -> None:
    started = [
        OSError(errno.ENOSPC, "x"),
        _raised(OSError(errno.EMFILE, "x"), RuntimeError("wrapped")),
    ]
    for error in started:
        assert refused_resource(error)
    for error in (ValueError(), OSError(errno.ECONNRESET, "x"), BlockingIOError(errno.EAGAIN, "x"), RuntimeError("x")):
        assert not refusal_cause(error)


def _raised(first: Exception, then: Exception) -> Exception:
    try:
        try:
            raise first
        except OSError:
            raise then  # noqa: B904  # as implementations do
    except RuntimeError as error:
        return error


def test_threads_that_cannot_start_are_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*arguments: object, **options: object) -> None:
        raise RuntimeError("no more threads")

    for name in ("_start_new_thread", "_start_joinable_thread"):
        monkeypatch.setattr(threading, name, no_more, raising=False)
    with pytest.raises(RuntimeError) as caught:
        threading.Thread(target=print).start()
    assert "EAGAIN" in refused_resource(caught.value)


def test_without_a_free_port_the_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as taken:
        listening = taken.enter_context(socket.create_server(("127.0.0.1", 0)))
        number = listening.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", number)
        monkeypatch.setattr(ports, "_LAST", number)
        verdict, *_ = check_adapter("numpy_sockets", world_sizes=[2], checks=[CHECK], profile="quick")
    assert verdict.status == "unknown"
    assert verdict.diagnosis is not None
    assert [cause.id for cause in verdict.diagnosis.causes] == [machine.NO_FREE_PORT.id]


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs a network namespace"
)
@pytest.mark.parametrize("words", [["check", "numpy_sockets", "-w", "2", "-c", CHECK], ["train", "numpy_sockets"]])
def test_without_loopback_the_start_names_the_network(tmp_path: Path, words: list[str]) -> None:
    command = ["unshare", "-n", sys.executable, "-m", "ddpcheck", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    said = ended.stdout + ended.stderr
    assert "127.0.0.1 cannot be reached, so the" in said
    assert "ip link set lo up" in said
    assert "Traceback" not in said
    assert ended.returncode in (1, 2)


CRASHES = """
import os, signal
from dataclasses import replace
from ddpcheck_implementations.numpy_sockets import adapter as right

def connect(context):
    os.kill(os.getpid(), signal.SIGBUS)

adapter = replace(right, name="crashes", connect=connect)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is Linux's")
@pytest.mark.parametrize(("there", "status"), [(True, "failed"), (False, "unknown")])
def test_ranks_that_die_for_want_of_shared_memory_are_no_fault(
    there: bool, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPI engines end their process by a signal, and print the reason in their own words."""
    monkeypatch.setattr(refused_resources, "_SHARED_MEMORY", str(tmp_path if there else tmp_path / "absent"))
    (tmp_path / "crashes.py").write_text(CRASHES)
    verdict = check_adapter(f"{tmp_path}/crashes.py:adapter", [2], ["check_barrier_waits_for_every_rank"])[0]
    assert verdict.check == "check_ranks_start"
    assert verdict.status == status
    assert verdict.diagnosis is not None
    causes = [cause.id for cause in verdict.diagnosis.causes]
    assert (machine.SYSTEM_REFUSES_RESOURCE.id in causes) == (not there)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/shm is Linux's")
@pytest.mark.parametrize(("there", "status"), [(True, "failed"), (False, "unknown")])
def test_ranks_that_die_for_want_of_shared_memory_before_they_report_are_no_fault(
    there: bool, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MPICH ends all ranks if one dies, and some may not have reached the driver by then."""
    monkeypatch.setattr(refused_resources, "_SHARED_MEMORY", str(tmp_path if there else tmp_path / "absent"))
    launcher = CommandLauncher("sh -c 'kill -BUS $$' {ranks}", "127.0.0.1")
    checks = ["check_barrier_waits_for_every_rank"]
    (verdict, *_) = run_checks("numpy_sockets", [2], checks, settings=Settings(launcher=launcher))
    assert verdict.check == "check_ranks_start"
    assert verdict.status == status


@pytest.mark.skipif(sys.platform != "linux", reason="counts the descriptors of Linux")
@pytest.mark.parametrize(("method", "ranks"), [("fork", 8), ("spawn", 8), ("forkserver", 8), ("forkserver", 3)])
def test_ranks_that_cannot_start_for_want_of_descriptors_are_no_fault(tmp_path: Path, method: str, ranks: int) -> None:
    """Their parent may open so few files that it cannot start all of them; those that it has started do not wait for the
    rest. Of three ranks, the first cannot accept the others.
    """
    words = ("check", "numpy_sockets", "-w", str(ranks), "-c", CHECK, "--profile", "quick", "--json", "results.json")
    ended = subprocess.run(
        [sys.executable, "-m", "ddpcheck", *words, "--launcher", method],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16)),
    )
    assert (tmp_path / "results.json").is_file(), ended.stdout + ended.stderr
    first = json.loads((tmp_path / "results.json").read_text())["verdicts"][0]
    assert first["status"] == "unknown", first
    assert [cause["id"] for cause in first["diagnosis"]["causes"]] == [machine.SYSTEM_REFUSES_RESOURCE.id]
    assert "EMFILE" in ended.stdout


NO_THREAD = """
import threading

def refusing(start):
    def begin(bootstrap, *arguments, **options):
        if bootstrap.__self__.name == "ddpcheck-sentinel":
            raise RuntimeError("no more threads")
        return start(bootstrap, *arguments, **options)

    return begin

for name in ("_start_new_thread", "_start_joinable_thread"):
    if hasattr(threading, name):
        setattr(threading, name, refusing(getattr(threading, name)))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_that_may_not_start_a_thread_names_the_resource(
    method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_THREAD)
    monkeypatch.syspath_prepend(tmp_path)
    session = Session("numpy_sockets", 2, launcher=Multiprocessing(method), grace=0.3)
    with session, pytest.raises(StartFailed) as failed:
        session.start()
    assert failed.value.says_nothing
    assert "EAGAIN" in failed.value.causes[0].headline


@pytest.mark.parametrize(
    ("line", "resource"),
    [
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "EAGAIN"),
        ("RuntimeError: can't start new thread", "EAGAIN"),
        ("[mpiexec@here] launch_procs: pipe error (Too many open files)", "EMFILE"),
        ("OSError: [Errno 28] No space left on device", "ENOSPC"),
        ("OSError: [Errno 12] Cannot allocate memory", "ENOMEM"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="these are the words of Linux")
def test_output_of_a_process_that_cannot_start_names_the_resource(line: str, resource: str) -> None:
    (cause,) = cause_in_output(f"Traceback (most recent call last):\n{line}\n")
    assert resource in cause.headline
    assert not cause_in_output("ModuleNotFoundError: No module named 'mine'")
