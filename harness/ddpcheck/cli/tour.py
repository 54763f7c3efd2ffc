"""`ddpcheck tour`: checks, trains and audits with the installed references."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from ..running.adapter_lookup import UnusableAdapter, known_adapters
from ..running.check_runner import Settings
from ..running.expected_failures import ExpectedFailures
from ..running.plan import RANKS_START, installed_checks, plan
from ..running.profiles import profile_named
from ..storage.failures_folder import FAILURES_FOLDER
from ..verdict import Verdict
from .console import console
from .options import chosen_sizes, default_sessions, usage_errors
from .run_of_checks import exit_code, run_with_progress, show_all
from .verdict_output import summary

REFERENCES = ("numpy_sockets", "numpy_mpi", "torch_ddp")


@click.command("tour")
@chosen_sizes("Default: 1,2,3.")
@click.option("--train/--no-train", default=True, show_default=True, help="Also train with each reference on 2 ranks.")
@click.option("-v", "--verbose", is_flag=True, help="Show a row for every check, and all reasons for skips.")
def command(world_sizes: tuple[int, ...] | None, train: bool, verbose: bool) -> None:
    """Check the reference implementations that can run here, quickly, then train each, then audit a training script."""
    out = console()
    settings = Settings(profile_named("quick"), sessions=default_sessions())
    with usage_errors():
        every = installed_checks()
    items, ready = [], []
    for name in (name for name in REFERENCES if name in known_adapters()):
        try:
            found = plan(name, world_sizes or settings.profile.world_sizes, every)
        except UnusableAdapter as error:
            out.print(f"left out: {name}: {error}", markup=False, soft_wrap=True)
            continue
        reason = next((item.skip for item in found if item.check is RANKS_START and item.skip), "")
        if reason:
            out.print(f"left out: {name}: {reason}", markup=False, soft_wrap=True)
            continue
        ready.append(name)
        items += found
    if not ready:
        raise click.ClickException("no reference implementation can run here; see: ddpcheck doctor")
    out.print(f"checking {', '.join(ready)}", style="bold", markup=False)
    out.print(
        "each check runs Jobs: a few operations for all ranks, such as backward and step, whose results it judges"
    )
    began = time.monotonic()
    verdicts: list[Verdict] = []
    failures = Path(FAILURES_FOLDER)
    run_with_progress(out, items, settings, ExpectedFailures({}, every), failures, verdicts)
    seconds = time.monotonic() - began
    show_all(out, verdicts, seconds, failures, verbose=verbose)
    status = exit_code(out, verdicts)
    if train:
        status = max(status, *(_train(out, name) for name in ready))
    status = max(status, _audit(out, verbose=verbose))
    out.print(f"\nchecked {', '.join(ready)}: {summary(verdicts, seconds)}", markup=False, soft_wrap=True)
    out.print("Your own implementation: ddpcheck check my_module:adapter (the README shows one in five lines)")
    out.print("Your own training script:  ddpcheck audit train.py")
    sys.exit(status)


def _train(out: Console, name: str) -> int:
    """1 if training failed. Runs `ddpcheck train` as a program, as a user would."""
    out.print(f"\ntraining {name} on handwritten digits, 2 ranks", style="bold", markup=False)
    line = ["train", name, "--world-size", "2", "--epochs", "5"]
    return int(subprocess.run([sys.executable, "-m", "ddpcheck", *line], check=False).returncode != 0)


def _audit(out: Console, *, verbose: bool = False) -> int:
    """1 if the audit fails a correct training script. The script is copied into a temporary folder, as a user's own
    script.
    """
    out.print("\nauditing a training script of ddpcheck, 2 ranks", style="bold", markup=False)
    if importlib.util.find_spec("torch") is None:
        out.print("left out: the script needs torch; install it with: pip install torch", markup=False)
        return 0
    text = Path(__file__).with_name("tour_script.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="ddpcheck-tour-") as folder:
        Path(folder, "train.py").write_text(text, encoding="utf-8")
        options = ["--steps", "4", "--seconds", "0", *["--verbose"] * verbose]
        line = [sys.executable, "-m", "ddpcheck", "audit", *options, "train.py"]
        return int(subprocess.run(line, cwd=folder, check=False).returncode != 0)
