"""The commands of trials: small, of every kind that starts ranks, by every launcher."""

from __future__ import annotations

import importlib.util
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from training_data import write_idx

from chaos import rank_programs
from chaos.surroundings import OUT
from ddpcheck.launchers.mpi import find_mpi

DEADLINE = 4
RESULTS = f"{OUT}/results.json"
_CHECKS = (
    "check_all_reduce_sums_exactly",
    "check_broadcast_gives_every_rank_the_root_array",
    "check_parameters_after_sgd_steps_are_exact",
    "check_dead_rank_raises_on_every_other_rank",
    "sampler",
)
_IMAGES = ("--data", "mnist", "--data-dir", ".", "--epochs", "20")
_SAMPLES = 256
_WITH_DIGITS = 0.1
_MINE = """
from ddpcheck_implementations.numpy_sockets import adapter, tcp
"""
SCRIPT = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
dist.destroy_process_group()
"""


def drawn_command(
    drawn: random.Random, victim: str, *, pauses: bool = False, killed: bool = False, adapter: str = ""
) -> tuple[str, ...]:
    """The words after `ddpcheck`: a command that has a process of this kind: a rank, a helper or an engine.

    pauses: the process may be stopped, so only commands with a deadline qualify. killed: the driver may be killed, so
    commands with temporary folders of git do not qualify. adapter: checked in place of a random one.
    """
    size = drawn.choice((*("1",) * 2, *("2",) * 6, "3", "3", "4", "8"))
    has_torch = importlib.util.find_spec("torch") is not None
    if victim == "engine":
        started = [("numpy_mpi", "mpiexec")] * (find_mpi() is not None) + [("numpy_sockets", "torchrun")] * has_torch
        name, launcher = drawn.choice(started or [("numpy_sockets", "processes")])
        return (*_check(drawn, name, size), "--launcher", launcher)
    if victim == "helper":
        return (*_check(drawn, "numpy_sockets", size), "--launcher", drawn.choice(("processes", "spawn", "forkserver")))
    name = adapter or "numpy_sockets"
    gate, audit = ("gate",) * (not killed), ("audit",) * (has_torch and ":" not in name)
    kind = drawn.choice(("check", "check", "train", "bench", *gate, *audit))
    if kind == "check" or pauses:
        launcher = drawn.choice(("processes", "processes", "fork", "spawn", "forkserver"))
        return (*_check(drawn, name, size), "--launcher", launcher)
    if kind == "train":
        # images from files, because scikit-learn with its digits takes three quarters of a run's time to import
        data = ("--data", "digits", "--epochs", "3") if drawn.random() < _WITH_DIGITS else _IMAGES
        return ("train", name, "-n", size, *data, "--checkpoint", f"{OUT}/run.npz")
    if kind == "bench":
        sizes = ("--sizes", "4B,64KiB", "--collectives", "all_reduce", "--steps", "none")
        return ("bench", name, "-w", size, *sizes, "--launches", "2", "--minutes", "1", "--json", RESULTS)
    if kind == "gate":
        own = "mine.py:adapter" if name == "numpy_sockets" else name if ":" in name else "mine.py:tcp"
        return ("gate", own, "--base", "HEAD", "-w", min(size, "2"), "--counts-only", "--json", f"{OUT}/gate")
    # without steps to compare there are no mirror runs, which take two thirds of an audit's time
    steps = drawn.choice(("2", "0", "0"))
    return ("audit", "-n", "2", "--steps", steps, "--seconds", "1", "--deadline", str(DEADLINE), "train.py")


def _check(drawn: random.Random, adapter: str, size: str) -> tuple[str, ...]:
    checks = [word for name in drawn.sample(_CHECKS, 2) for word in ("-c", name)]
    quick = ("--profile", "quick", "--deadline", str(DEADLINE), "--json", RESULTS)
    return ("check", adapter, "-w", size, *checks, *quick)


def prepare(folder: Path, words: Sequence[str]) -> None:
    """Create the files that the command names."""
    (folder / OUT).mkdir()
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    (folder / rank_programs.FILE).write_text(rank_programs.TEXT, encoding="utf-8")
    if "mnist" in words:
        images = np.arange(_SAMPLES * 16, dtype=np.uint8).reshape(_SAMPLES, 4, 4)
        for part in ("train", "t10k"):
            write_idx(folder / f"{part}-images-idx3-ubyte", images)
            write_idx(folder / f"{part}-labels-idx1-ubyte", np.arange(_SAMPLES) % 10)
    if words[0] == "gate":
        (folder / "mine.py").write_text(_MINE, encoding="utf-8")
        name = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
        for line in (("init", "-q"), ("add", "."), (*name, "commit", "-q", "-m", "the reference")):
            subprocess.run(["git", *line], cwd=folder, check=True, stdin=subprocess.DEVNULL)
