"""Runs a script with the recorder installed: python -m ddpcheck.audit.record train.py ARGS, or -m package.module ARGS.

The parent starts this program with DDPCHECK_AUDIT in the environment (recorded_process.py). The program ends after the
requested steps.
"""

from __future__ import annotations

import faulthandler
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..launchers.process_handles import DRIVER, end_with_parent
from .recorded_process import Run, RunSettings, root_of

_INTENTIONS = (
    "no_sync",
    "SyncBatchNorm",
    "set_epoch",
    "DistributedSampler",
    "init_process_group",
    "break",
    "gather_for_metrics",
)


def run_script(words: list[str], rank: int, install: Callable[[Run], None]) -> None:
    """Run the script with these arguments as `python` would, after `install` has replaced functions."""
    if driver := os.environ.pop(DRIVER, ""):
        end_with_parent(int(driver))
    settings = RunSettings.here()
    module = words[0] == "-m"
    root = str(root_of(words))
    run = Run(settings, rank, root)
    stacks = (run.journal.folder / "stacks.txt").open("w")
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    run.note("begin", pid=os.getpid(), rank=run.rank, words=words, in_turn=settings.in_turn, mentions=_mentions(words))
    install(run)
    run.note("installed", no_gpu=run.settings.no_gpu)
    try:
        if module:
            sys.argv = words[1:]
            sys.path.insert(0, root)
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            sys.path[0] = root
            runpy.run_path(str(Path(words[0]).resolve()), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            error = f"the script exited with {end.code!r}"
            run.leave("exit", 1, error=error, line=_line(run, end), exit_status=_exit_status(end))
    except BaseException as error:
        traceback.print_exc()
        run.leave("raised", 1, error=f"{type(error).__name__}: {error}", line=_line(run, error))
    run.leave("finished")


def _exit_status(end: SystemExit) -> int:
    """The status with which Python would end; a message as the code means 1."""
    return end.code if isinstance(end.code, int) else 1


def _install(run: Run) -> None:
    from .recorder import (
        batch_values,
        collectives,
        compile_and_spawn,
        data,
        files,
        gradient_hooks,
        gradients,
        models,
        optimizers,
        python_random_draws,
        string_hashes,
        torch_random_draws,
        wrappers,
    )

    if run.settings.no_gpu:
        from . import cuda_emulation

        cuda_emulation.install(run.settings.ranks if not run.mirrors else run.settings.mirror_size)
    parts: list[Any] = [
        compile_and_spawn,
        collectives,
        gradient_hooks,
        gradients,
        optimizers,
        wrappers,
        models,
        data,
        batch_values,
        files,
        python_random_draws,
        string_hashes,
        torch_random_draws,
    ]
    for part in parts:
        part.install(run)
    if run.mirrors:
        from .mirror import batch_norm, group

        group.install(run)
        batch_norm.install(run)


def _mentions(words: list[str]) -> list[str]:
    """The names in the script's text that show its purpose."""
    try:
        text = Path(words[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [name for name in _INTENTIONS if name in text]


def _line(run: Run, error: BaseException) -> str:
    """The script's own line that raised the error."""
    lines = [
        f"{os.path.relpath(frame.filename, run.root)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(run.root + os.sep)
    ]
    return lines[-1] if lines else ""


def main() -> None:
    run_script(sys.argv[1:], int(os.environ.get("RANK", "0")), _install)


if __name__ == "__main__":
    main()
