"""The gate from end to end: on a repository with two commits, with adapters whose traffic or results differ."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddpcheck_benchmarks.gate.command import command

PLANTED = "from ddpcheck_implementations.planted_regressions import {} as adapter\n"

WRAPPER = """\
import torch.distributed as dist
from torch import nn
from ddpcheck.pytorch.adapter import torch_adapter


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter):
        for _ in range({times}):
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

    def forward(self, *inputs):
        return self.module(*inputs)


adapter = torch_adapter("mine", Wrapper)
"""
"""Means of `times` all-reduces, in torch over Gloo, which counts nothing."""


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    return subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One commit on `main` with the reference as adapter in src/mine.py. A gate must leave nothing behind: no worktree,
    and nothing in `temporary`, the folder for temporary files.
    """
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "mine.py").write_text(PLANTED.format("plain"))
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "the reference")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield root
    assert git(root, "worktree", "list").count("\n") == 1
    assert list((tmp_path / "temporary").iterdir()) == []


def gate(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def plant(root: Path, name: str) -> None:
    (root / "src" / "mine.py").write_text(PLANTED.format(name))


@pytest.mark.parametrize(
    ("planted", "says"),
    [("extra_all_reduce", "messages per step"), ("unbucketed", "messages per step"), ("doubled", "bytes per step")],
)
def test_more_traffic_fails(repository: Path, planted: str, says: str) -> None:
    plant(repository, planted)
    page = repository.parent / "page.md"
    shown = gate("mine:adapter", "--base", "main", "--counts-only", "--benchmarks", "step", "--markdown", str(page))
    assert shown.exit_code == 1, shown.output
    assert "REGRESSION (more traffic: step)" in shown.output
    found = next(line for line in page.read_text().splitlines() if says in line)
    assert "MORE" in found
    *_, base, head, _, _, _ = map(str.strip, found.split("|"))
    line = next(line for line in shown.output.splitlines() if says in line)
    assert re.search(f"{base} +{head} +MORE", line), line


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_more_bytes_fail_if_only_the_kernel_counts_them(repository: Path) -> None:
    (repository / "src" / "mine.py").write_text(WRAPPER.format(times=1))
    git(repository, "commit", "-q", "-a", "-m", "a wrapper")
    (repository / "src" / "mine.py").write_text(WRAPPER.format(times=2))
    page = repository.parent / "page.md"
    shown = gate("mine:adapter", "--base", "main", "--counts-only", "--benchmarks", "step", "--markdown", str(page))
    assert shown.exit_code == 1, shown.output
    assert "TCP bytes per step, busiest rank | 343,464 | 686,928 |" in page.read_text()


def test_equal_traffic_passes_and_a_file_is_as_good_as_a_module(repository: Path) -> None:
    (repository / "src" / "mine.py").write_text("# new\n" + PLANTED.format("plain"))
    shown = gate("src/mine.py:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 0, shown.output
    assert "no regression" in shown.output


def test_intended_traffic_increase_is_accepted(repository: Path) -> None:
    plant(repository, "extra_all_reduce")
    git(repository, "commit", "-q", "-a", "-m", "head")
    words = ("mine:adapter", "--base", "main~1", "--head", "main", "--counts-only", "--benchmarks", "step")
    assert gate(*words).exit_code == 1
    assert gate(*words, "--accept-more").exit_code == 0


def test_wrong_results_come_first(repository: Path) -> None:
    plant(repository, "doubled")
    losing = Path(__file__).with_name("test_timing.py").read_text()
    (repository / "src" / "mine.py").write_text(losing.replace("losing =", "adapter ="))
    shown = gate("mine:adapter", "--base", "main", "--benchmarks", "all_reduce:4KiB")
    assert shown.exit_code == 3, shown.output
    assert "WRONG results: all_reduce:4KiB" in shown.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("mine:adapter", "--base", "nowhere"), "nowhere"),
        (("mine:adapter",), "name an adapter and --base"),
        (("mine:absent", "--base", "main"), "has no attribute 'absent'"),
        (("mine:adapter", "--base", "main", "--benchmarks", "all_reduce"), "should have a size"),
        (("mine:adapter", "--base", "main", "--benchmarks", "all_reduce:3B"), "write a size that 4 divides"),
        (("mine:adapter", "--base", "main", "--benchmarks", "all_reduce:64K"), "is not a size: write bytes"),
        (("mine:adapter", "--base", "main", "--benchmarks", "stop"), "did you mean step?"),
        (("mine:adapter", "--base", "main", "--benchmarks", "broadcast:4B:in_place"), "in place"),
        (("mine:adapter", "--base", "main", "--setup", "exit 3"), "'exit 3' failed with exit status 3"),
        (("mine:adapter", "--base", "main", "--base-python", "/nowhere/python"), "/nowhere/python cannot be run"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_unmeasurable_case_is_reported(words: tuple[str, ...], says: str) -> None:
    shown = gate(*words)
    assert shown.exit_code == 2
    assert says in " ".join(shown.output.split()).replace("│ ", "")


def test_base_without_the_adapter_is_reported(repository: Path) -> None:
    (repository / "src" / "newer.py").write_text(PLANTED.format("plain"))
    shown = gate("newer:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 2
    assert "no module 'newer'" in shown.output


def test_base_with_an_older_harness_is_reported(repository: Path) -> None:
    """The base's own ddpcheck, which is imported before ours, lacks the measuring operations."""
    import ddpcheck

    old = repository / "src" / "ddpcheck"
    old.mkdir()
    theirs = Path(ddpcheck.__file__).parent
    for place in theirs.iterdir():
        if place.name not in ("job.py", "__pycache__"):
            (old / place.name).symlink_to(place)
    job = (theirs / "job.py").read_text()
    (old / "job.py").write_text(
        job
        + "\n\n@staticmethod\ndef _old(data: Any) -> Job:\n    raise ValueError('unknown kind')\n\n\nJob.from_plain = _old\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "with a harness of its own")
    shown = gate("mine:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 2
    assert "it is older than the gate; choose a later --base" in " ".join(shown.output.split())


def test_an_adapter_from_elsewhere_is_not_compared_with_itself(repository: Path) -> None:
    """A module beside the repository would be the same one for both sides."""
    elsewhere = repository.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "installed.py").write_text(PLANTED.format("plain"))
    sys.path.append(str(elsewhere))
    shown = gate("installed:adapter", "--base", "main", "--counts-only")
    assert shown.exit_code == 2
    assert "both sides would be the same code" in " ".join(shown.output.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("heard")
def test_interrupted_it_leaves_nothing(repository: Path, number: signal.Signals) -> None:
    temporary = repository.parent / "temporary"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    words = [
        sys.executable,
        "-m",
        "ddpcheck",
        "gate",
        "mine:adapter",
        "--base",
        "main",
        "--benchmarks",
        "all_reduce:4B",
    ]
    running = subprocess.Popen(
        words,
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(temporary), "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    ranks = _ranks_below(running)
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert [pid for pid in ranks if _words_of(pid)] == []


INTERRUPTED_ADD = """#!/bin/sh
if [ "$1 $2" = "worktree add" ]; then
    {git} "$@"
    for folder in "$(dirname "$4")"/*; do rm -rf "$folder"; done    # known to git, but not there yet
    {git} worktree lock --reason initializing "$4"
    kill -{number} $PPID
    sleep 1000 &
    wait
fi
exec {git} "$@"
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("heard")
def test_interrupted_as_git_checks_out_it_leaves_nothing(repository: Path, number: signal.Signals) -> None:
    programs = repository.parent / "programs"
    programs.mkdir()
    (programs / "git").write_text(INTERRUPTED_ADD.format(git=shutil.which("git"), number=int(number)))
    (programs / "git").chmod(0o700)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    own = {
        "PYTHONPATH": path,
        "TMPDIR": str(repository.parent / "temporary"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    words = [sys.executable, "-m", "ddpcheck", "gate", "mine:adapter", "--base", "main", "--counts-only"]
    ended = subprocess.run(words, env=os.environ | own, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 128 + number, ended.stdout + ended.stderr


def _ranks_below(running: subprocess.Popen[bytes]) -> list[int]:
    """Wait until ranks run below this process; returns their process ids."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None:
        ranks = [int(child) for child in children.read_text().split() if "ddpcheck.worker" in _words_of(int(child))]
        if len(ranks) >= 2:
            return ranks
    raise AssertionError(running.communicate()[0])


def _words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has ended; the line of a process that was not waited for is empty
        return ""
