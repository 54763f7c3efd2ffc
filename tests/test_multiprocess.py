"""Ranks that one parent forks or spawns: inherited state, reports of their ends, and no remains."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ddpcheck import Job, Multiprocessing, Session, StartFailed, assertions
from ddpcheck.causes import Cause, lifecycle
from ddpcheck.job import AllReduce, Kill, TensorSpec
from ddpcheck.launchers.failing_rank_program import CONSEQUENCE, ROOT_CAUSE, ROOT_STATUS, run_trial
from ddpcheck.launchers.multiprocess import Method
from ddpcheck.launchers.process_handles import processes_under
from ddpcheck.launchers.processes import Processes
from ddpcheck.verdict import Finding
from ddpcheck_implementations.faulty import faults

HERE = Path(__file__).parent
MISBEHAVING = f"{HERE / 'misbehaving.py'}:adapter"
METHODS: tuple[Method, ...] = ("fork", "spawn", "forkserver")
QUICK = {"deadline": 5.0, "grace": 0.3}
every_method = pytest.mark.parametrize("method", METHODS)

ADAPTER = """
import os, sys
from ddpcheck import TYPICAL, Adapter, Facets
AT_IMPORT = f"{os.getpid()} {os.environ.get('RANK')} {hash('weight')}"
def connect(context):
    os.write(2, f"{context.rank} {os.getpid()} {AT_IMPORT} {'wave' in sys.modules}\\n".encode())
    raise RuntimeError("all is said")
promises = TYPICAL.of_facets("collectives").but(operations=frozenset({"all_reduce"}))
adapter = Adapter("says", connect, promises, requires=("wave",))
"""


def sums(world_size: int = 2) -> Job:
    return Job(world_size, (AllReduce(TensorSpec((3,))),))


def until_gone(pid: int) -> bool:
    """Whether the process ends soon."""
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@every_method
def test_a_rank_that_is_killed_is_told_and_started_again(method: Method) -> None:
    before = processes_under(os.getpid())
    with Session(MISBEHAVING, 2, launcher=Multiprocessing(method), **QUICK) as session:
        assert session.run(sums()).completed
        trace = session.run(Job(2, (Kill(1),)))
        with pytest.raises(Finding, match="rank 1 was killed by SIGKILL"):
            assertions.completed(trace)
        assert session.run(sums()).completed
        pids = session.pids
    assert all(until_gone(pid) for pid in pids)
    assert processes_under(os.getpid()) <= before


@every_method
def test_what_is_there_at_import_is_common_to_forked_ranks(
    method: Method, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)  # tox sets it
    (tmp_path / "says.py").write_text(ADAPTER, encoding="utf-8")
    session = Session(f"{tmp_path / 'says.py'}:adapter", 3, launcher=Multiprocessing(method))
    with pytest.raises(StartFailed, match="all is said") as caught:
        session.start()
    said = sorted({line for line in caught.value.details.splitlines() if line[:1].isdigit()})
    ranks, pids, importers, at_import, hashes, required = zip(*(line.split() for line in said), strict=True)
    assert ranks == ("0", "1", "2")
    assert len(set(pids)) == 3
    assert set(at_import) == {"None"}  # no method sets the rank before the adapter is imported
    assert set(required) == {"True"}
    assert (len(set(importers)), importers == pids) == ((1, False) if method == "fork" else (3, True))
    assert len(set(hashes)) == (2 if method == "spawn" else 1)
    assert (hashes[0] == hashes[1]) == (method != "spawn")


@pytest.mark.parametrize(
    ("name", "words", "causes"),
    [
        ("connect-reports-rank-of-import", "says that it is rank 0", (lifecycle.RANK_READ_AT_IMPORT(),)),
        ("port-taken-at-import", "Address already in use", ()),
    ],
)
def test_ranks_that_cannot_start_after_an_import_in_the_parent_say_why(
    name: str, words: str, causes: tuple[Cause, ...]
) -> None:
    fault = next(found for found in faults() if found.name == name)
    with Session(fault.adapter, 2, **QUICK) as session, pytest.raises(StartFailed, match=words) as failed:
        session.start()
    assert failed.value.causes == causes
    with Session(fault.adapter, 2, launcher=Processes(), **QUICK) as session:
        session.start()


@every_method
def test_a_parent_that_is_killed_takes_its_ranks_along(method: Method) -> None:
    with Session(MISBEHAVING, 2, launcher=Multiprocessing(method), **QUICK) as session:
        session.start()
        assert session._world is not None
        parent = session._world.launched.parent.process.pid
        os.kill(parent, signal.SIGKILL)
        assert all(until_gone(pid) for pid in session.pids)
        with pytest.raises(Finding, match="has ended: the process that started it was killed by SIGKILL"):
            assertions.completed(session.run(sums()))
        assert session.run(sums()).completed


DRIVER = """
import signal
from ddpcheck import Job, Multiprocessing, Session
from ddpcheck.job import AllReduce, TensorSpec
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
session = Session({reference!r}, 2, deadline=60, launcher=Multiprocessing({method!r}))
session.start()
print(*session.pids, *{{session._world.launched.parent.process.pid}}, flush=True)
session.run(Job(2, (AllReduce(TensorSpec((3,)), "max"),)))
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open is there on Linux only")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
@every_method
def test_nothing_outlives_the_driver(method: Method, ending: signal.Signals) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a short path, for a socket in it
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(reference=MISBEHAVING, method=method)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(folder)},
        text=True,
    )
    assert driver.stdout is not None
    with driver.stdout:
        started = [os.pidfd_open(int(pid)) for pid in driver.stdout.readline().split()]
    assert len(started) == 3
    driver.send_signal(ending)
    driver.wait(20)
    for process in started:
        readable, _, _ = select.select([process], [], [], 20.0)  # a pidfd is readable once the process has ended
        os.close(process)
        assert readable, "a process was left behind"
    folder.rmdir()  # fails if a file is left in it


@pytest.mark.parametrize("killed", [False, True])
@every_method
def test_first_failed_rank_is_reported(method: Method, killed: bool) -> None:
    trial = run_trial(Multiprocessing(method), 2, 1, within=20.0, later=0.5, killed=killed)
    assert trial.status == (-signal.SIGKILL if killed else ROOT_STATUS)
    assert trial.ended == ("rank 1 was killed by SIGKILL" if killed else f"rank 1 exited with status {ROOT_STATUS}")
    assert ROOT_CAUSE in trial.output
    assert CONSEQUENCE in trial.output


@every_method
def test_ranks_run_any_module_with_their_variables(method: Method, tmp_path: Path) -> None:
    (tmp_path / "says_so.py").write_text(
        "import os, sys\nfrom pathlib import Path\nif __name__ == '__main__':\n"
        "    Path(sys.argv[1], os.environ['RANK']).write_text(os.environ['WORLD_SIZE'] + os.environ['MASTER_PORT'])\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "says_so", str(tmp_path)]
    launched = Multiprocessing(method).start(
        command, 2, {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    )
    try:
        assert launched.wait() == 0, launched.output()
    finally:
        launched.kill()
        launched.kill()
    first, second = ((tmp_path / rank).read_text() for rank in "01")
    assert first == second
    assert first.startswith("2")


def test_nothing_stays_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for method in METHODS:
        with Session(MISBEHAVING, 2, launcher=Multiprocessing(method), **QUICK) as session:
            assert session.run(sums()).completed
    assert [path.name for path in tmp_path.iterdir()] == []
