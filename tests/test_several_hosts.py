"""Checks over several emulated hosts, with names, addresses and a stand-in for ssh; each engine with its own
command.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpcheck.cli.check import command as check
from ddpcheck.launchers.command_launcher import CommandLauncher
from ddpcheck.launchers.mpi import find_mpi
from ddpcheck_benchmarks.hosts.expected_times import least_seconds, rows
from ddpcheck_benchmarks.hosts.machines import Machine, machines
from ddpcheck_benchmarks.hosts.network import network, unavailable

CODE = Path(__file__).parents[1] / "docs" / "how-to" / "code"
EVERY = bool(os.environ.get("DDPCHECK_EVERY_FAULT"))
MPI_LINES = {
    "mpich": "mpirun -f hosts -n {ranks}",
    "openmpi": "mpirun --allow-run-as-root --hostfile hosts --map-by node:OVERSUBSCRIBE -n {ranks}",
}
FLAVOUR = getattr(find_mpi(), "flavour", "")
may_emulate = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
has_mpi = pytest.mark.skipif(
    FLAVOUR not in MPI_LINES or find_spec("mpi4py") is None, reason="needs mpi4py, and MPICH or Open MPI"
)
SLURM_TYPES = {"mpich": "pmi2", "openmpi": "pmix"}
has_slurm = pytest.mark.skipif(
    not EVERY or any(shutil.which(name) is None for name in ("munged", "slurmctld", "slurmd", "srun")),
    reason="needs Slurm and munge, and DDPCHECK_EVERY_FAULT=1",
)
has_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


DEAF_TO_SIGTERM = """
import os, signal, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = os.environ["RANK"]
with open(f"new-{rank}", "w") as file:
    print(os.getpid(), os.getppid(), file=file)
os.rename(f"new-{rank}", f"rank-{rank}")
time.sleep(600)
"""


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[tuple[Machine, ...]]:
    with network(2, 1.25e9) as joined, machines(joined) as made:
        yield made


def on_first(hosts: tuple[Machine, ...], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words_on_first(hosts, folder, *words), capture_output=True, text=True, check=False)


def checked(
    hosts: tuple[Machine, ...], folder: Path, name: str, line: str, *options: str, inside: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """A check of two ranks that this line starts, in the quick profile. inside: the command that runs it."""
    (folder / "hosts").write_text("host0\nhost1\n", encoding="utf-8")
    words = ("check", name, "--profile", "quick", "--deadline", "60", "-w", "2", "-q", *options)
    ranks = ("--start", line, "--listen", "host0")
    return on_first(hosts, folder, *inside, sys.executable, "-m", "ddpcheck", *words, *ranks)


def words_on_first(hosts: tuple[Machine, ...], folder: Path, *words: str) -> list[str]:
    """The command line that runs these words on the first host, in the folder."""
    words = tuple(hosts[0].command(words))
    where = words.index(f"--wd={Path.cwd()}")
    return [*words[:where], f"--wd={folder}", *words[where + 1 :]]


@may_emulate
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("numpy_sockets", f"{CODE}/by_ssh.sh {{ranks}}"),
        pytest.param("numpy_mpi", MPI_LINES.get(FLAVOUR, ""), marks=has_mpi),
        pytest.param("torch_ddp", f"{CODE}/by_torchrun.sh {{ranks}}", marks=has_torch),
    ],
)
def test_a_reference_holds_over_two_hosts(two_hosts: tuple[Machine, ...], tmp_path: Path, name: str, line: str) -> None:
    """Without DDPCHECK_EVERY_FAULT: two checks of the quick profile, one of which restarts the ranks."""
    some = () if EVERY else ("-c", "all_reduce_sums_exactly", "-c", "close_returns")
    done = checked(two_hosts, tmp_path, name, line, *some)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".ddpcheck")] == []


@may_emulate
@has_slurm
@pytest.mark.parametrize(
    ("name", "mpi"),
    [
        ("numpy_sockets", "none"),
        pytest.param("numpy_mpi", SLURM_TYPES.get(FLAVOUR, ""), marks=has_mpi),
        pytest.param("torch_ddp", "none", marks=has_torch),
    ],
)
def test_a_reference_holds_under_slurm(two_hosts: tuple[Machine, ...], tmp_path: Path, name: str, mpi: str) -> None:
    some = ("-c", "all_reduce_sums_exactly", "-c", "close_returns")
    line, cluster = f"srun --mpi={mpi} --overlap -n {{ranks}}", (str(CODE / "in_slurm.sh"),)
    done = checked(two_hosts, tmp_path, name, line, *some, inside=cluster)
    assert done.returncode == 0, done.stdout + done.stderr


@may_emulate
@has_mpi
def test_mpi_uses_the_network_between_emulated_hosts(two_hosts: tuple[Machine, ...], tmp_path: Path) -> None:
    """The check is skipped if the kernel has sent no bytes."""
    done = checked(two_hosts, tmp_path, "numpy_mpi", MPI_LINES[FLAVOUR], "-c", "collectives_send_no_excess_bytes")
    assert done.stdout.startswith("2 passed;"), done.stdout + done.stderr


@may_emulate
@pytest.mark.parametrize("script", ["by_ssh.sh", pytest.param("by_torchrun.sh", marks=has_torch)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_line_leaves_no_process_on_another_host(
    two_hosts: tuple[Machine, ...], tmp_path: Path, script: str, number: signal.Signals
) -> None:
    (tmp_path / "hosts").write_text("host0\nhost1\n", encoding="utf-8")
    (tmp_path / "rank.py").write_text(DEAF_TO_SIGTERM, encoding="utf-8")
    words = words_on_first(two_hosts, tmp_path, str(CODE / script), "2", sys.executable, "rank.py")
    meeting = {"MASTER_ADDR": "host0", "MASTER_PORT": "20000"}
    with subprocess.Popen(words, env={**os.environ, **meeting}, start_new_session=True) as line:
        processes: list[int] = []
        try:
            for path in (tmp_path / "rank-0", tmp_path / "rank-1"):
                while not path.exists():
                    assert line.poll() is None
                    time.sleep(0.05)
                processes += [os.pidfd_open(int(each)) for each in path.read_text(encoding="ascii").split()]
            os.killpg(line.pid, number)
            line.wait()
            assert [bool(select.select([process], [], [], 60)[0]) for process in processes] == [True] * 4
        finally:
            with suppress(ProcessLookupError):
                os.killpg(line.pid, signal.SIGKILL)
            for process in processes:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                os.close(process)


@may_emulate
def test_hosts_have_names_and_answer_to_ssh_with_a_fresh_environment(
    two_hosts: tuple[Machine, ...], tmp_path: Path
) -> None:
    line = "hostname; DRAWN=1 ssh -o BatchMode=yes root@host1 'hostname; echo \"${DRAWN-none}\"'; ssh nowhere hostname"
    done = on_first(two_hosts, tmp_path, "sh", "-c", line)
    assert done.stdout.split() == ["host0", "host1", "none"]
    assert done.returncode == 255
    assert "Could not resolve hostname nowhere" in done.stderr


@may_emulate
def test_a_command_on_emulated_hosts_has_its_own_exit_status(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ddpcheck_benchmarks.hosts", "2", "--", "sh", "-c", "hostname; exit 3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("host0\n", 3)


def test_ranks_that_a_line_starts_are_right_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No emulated host is needed: the command starts both ranks itself."""
    script = tmp_path / "both.sh"
    script.write_text(
        '#!/bin/sh\nn=$1; shift\nfor rank in 0 1; do RANK=$rank WORLD_SIZE=$n "$@" & done\nwait\n', encoding="utf-8"
    )
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    words = ["numpy_sockets", "-w", "2", "-q", "-c", "all_reduce_sums_exactly", "--profile", "quick"]
    done = CliRunner().invoke(check, [*words, "--start", f"{script} {{ranks}}", "--listen", "127.0.0.1"])
    assert done.exit_code == 0, done.output
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".ddpcheck")] == []


def test_ranks_that_start_after_their_driver_was_killed_remove_its_secret(tmp_path: Path) -> None:
    script = tmp_path / "late.sh"
    script.write_text(
        "#!/bin/sh\nkill -KILL $PPID\nn=$1; shift\nls -d .ddpcheck-secret-* > before\n"
        'for rank in 0 1; do env -i RANK=$rank WORLD_SIZE=$n PYTHONPATH="$PYTHONPATH" "$@" & done\n'
        "wait\nls -a > new; mv new after\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    words = ["check", "numpy_sockets", "-w", "2", "-c", "sums_exactly", "--start", "./late.sh {ranks}"]
    words += ["--listen", "127.0.0.1"]
    done = subprocess.run([sys.executable, "-m", "ddpcheck", *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    while not (tmp_path / "after").exists():
        time.sleep(0.05)
    assert (tmp_path / "before").read_text(encoding="utf-8")
    assert ".ddpcheck" not in (tmp_path / "after").read_text(encoding="utf-8")


def test_the_secret_is_in_a_file_of_this_user_and_in_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    launched = CommandLauncher("echo {ranks}", "127.0.0.1").start(
        ["python", "-m", "x"], 3, {"DDPCHECK_SECRET": "s3cret", "A": "b c"}, inherit_output=False
    )
    try:
        launched.wait()
        (folder,) = tmp_path.glob(".ddpcheck-secret-*")
        assert folder.stat().st_mode & 0o077 == 0
        told = f"DDPCHECK_SECRET_FILE={folder}/secret DDPCHECK_SCRATCH={folder}"
        assert launched.output() == f"3 env A=b c {told} python -m x"
    finally:
        launched.kill()
    assert not list(tmp_path.iterdir())


def test_a_secret_that_the_user_has_copied_to_all_hosts_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "copied"
    file.write_text("s3cret\n", encoding="ascii")
    monkeypatch.setenv("DDPCHECK_SECRET_FILE", str(file))
    listener = CommandLauncher("echo {ranks}", "127.0.0.1").listener()
    listener.close()
    assert listener.secret == "s3cret"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--start", "mpirun -n 2"], "should hold {ranks}"),
        (["--start", "'mpirun {ranks}"], "cannot be read"),
        (["--start", "no_such_program {ranks}"], "no_such_program in --start was not found"),
        (["--listen", "host0"], "--listen is only for --start"),
        (["--start", "sh {ranks}", "--launcher", "mpiexec"], "--launcher and --start exclude each other"),
    ],
)
def test_lines_that_cannot_start_ranks_are_usage_errors(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(check, ["numpy_sockets", *arguments])
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


def test_expected_times_are_bytes_over_rate() -> None:
    assert least_seconds(2, 25_000_000, 25e6) == 1.0
    assert least_seconds(4, 25_000_000, 25e6) == 1.5
    info = {"collective": "all_reduce", "link": "200Mbit/s", "in_place": False, "world_size": 2, "bytes": 25_000_000}
    entry = {"extra_info": {**info, "adapter": "a", "wrong": 0}, "stats": {"median": 1.05}}
    inside = {"extra_info": {**info, "in_place": True}, "stats": {"median": 1.0}}
    start = {"extra_info": {"kind": "startup", "link": "200Mbit/s"}, "stats": {"median": 1.0}}
    assert list(rows({"benchmarks": [entry, inside, start]})) == [
        "| a | 2 | 25,000,000 | 200Mbit/s | 1000.0 | 1050.0 | +5.0% | 0 |"
    ]
