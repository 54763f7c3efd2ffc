"""Starts the real run and the mirror runs of a script, with a deadline for each, and reports how each process ended."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..launchers.agent import Agent
from ..launchers.launcher import ForkServerLauncher, Launched, parent_of
from ..launchers.processes import Children
from ..scratch_folder import temporary_folder
from ..trace import IMPORTING
from .event_journal import JournalReader
from .recorded_process import RunSettings
from .request import Request, ScriptRun
from .script_kinds import ScriptKind
from .whole_output import with_whole_output

_POLL = 0.05
_TO_IMPORT = 120.0
"""Seconds for the script's imports: a large framework, on a busy machine."""
_STACKS_WITHIN = 2.0
_AFTER_FAILURE = 8.0
_IMPORTING = 10
_REMOVE = 'cat; tries=100; until rm -rf "$0" || [ $tries = 0 ]; do tries=$((tries - 1)); sleep 0.1; done'
"""Removes a folder when standard input ends, so also if this process is killed; again if ranks still write to the folder."""


@contextmanager
def audited(keep: Path | None = None) -> Iterator[Path]:
    """A folder for the journals, removed at the end unless it is kept."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    folder = (temporary_folder() / f"ddpcheck-audit-{secrets.token_hex(8)}").resolve()
    # before the folder is made, so that a kill in between leaves none
    with subprocess.Popen(["sh", "-c", _REMOVE, str(folder)], stdin=subprocess.PIPE, start_new_session=True):
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # an interrupt does not wait for the process


def real_run(request: Request, kind: ScriptKind, folder: Path) -> ScriptRun:
    """The script on its ranks, as torchrun would start them."""
    settings = RunSettings(
        str(folder), "real", request.ranks, request.steps, request.far, no_gpu=request.no_gpu, seconds=request.seconds,
        resumes=request.resumed is not None,
    )  # fmt: skip
    return _run(request, kind, settings, request.ranks, {})


def resumed_runs(request: Request, kind: ScriptKind, folder: Path) -> tuple[ScriptRun, ...]:
    """The run that stops early, and the run that resumes from its checkpoint, with the requested arguments."""
    made = []
    for name, arguments in (("interrupted", request.interrupted), ("resumed", request.resumed or ())):
        head = 2 if request.script[0] == "-m" else 1
        again = replace(request, script=(*request.script[:head], *arguments))
        settings = RunSettings(
            str(folder),
            name,
            request.ranks,
            0,
            request.far,
            no_gpu=request.no_gpu,
            seconds=request.seconds,
            resumes=True,
        )
        made.append(_run(again, kind, settings, request.ranks, {}))
    return tuple(made)


def mirrors_of(request: Request, folder: Path) -> tuple[RunSettings, ...]:
    """The mirrors: M = 1; M = 1 in another order and with last places changed, to measure rounding noise; and M = N."""
    order = tuple(range(request.ranks))
    one = RunSettings(
        str(folder), "one", request.ranks, request.steps, request.far, 1, order, request.in_turn, request.no_gpu
    )
    every = replace(one, name="all", mirror_size=request.ranks, in_turn=False)
    noise = (
        replace(one, name="noise", order=order[::-1], nudged=True)
        if request.in_turn
        else replace(one, name="noise", rolled=True, nudged=True)
    )
    return one, noise, every


def mirror_run(request: Request, kind: ScriptKind, settings: RunSettings) -> ScriptRun:
    """The script as one process, as rank 0 of M identical ranks."""
    shutil.rmtree(Path(settings.folder) / settings.name, ignore_errors=True)
    return _run(request, kind, settings, 1, _as_mirror(settings))


def _as_mirror(settings: RunSettings) -> dict[str, str]:
    size = str(settings.mirror_size)
    return {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}


def _run(
    request: Request, kind: ScriptKind, settings: RunSettings, processes: int, variables: Mapping[str, str]
) -> ScriptRun:
    command = [sys.executable, "-m", kind.recorder, *request.script]
    folder = Path(settings.folder) / settings.name
    folder.mkdir(parents=True, exist_ok=True)
    # without this, the math threads of several ranks compete for the same cores
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    path = os.pathsep.join(part for part in (_own_root(), os.environ.get("PYTHONPATH", "")) if part)
    torchrun = {
        "GROUP_RANK": "0",
        "ROLE_RANK": "0",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
    began = time.monotonic()
    launcher = kind.mirror_launcher() if settings.mirror_size else kind.launcher()
    if request.fork_servers is not None and isinstance(launcher, ForkServerLauncher):
        launcher = launcher.with_fork_servers(request.fork_servers)
    launched = launcher.start(
        command,
        processes,
        {"PYTHONPATH": path, **torchrun, **threads, **parent_of(launcher), **settings.variables(), **variables},
    )
    try:
        stacks = _hang(launched, folder, processes, request.deadline)
        hung = bool(stacks)
        stacks = stacks or ("",) * processes
        events = tuple(tuple(JournalReader(folder / str(rank)).events()) for rank in range(processes))
        run = ScriptRun(settings.name, events, stacks, launched.output(), hung, time.monotonic() - began, folder)
        return with_whole_output(request, run, launched.written) if isinstance(launched, Agent | Children) else run
    finally:
        launched.kill()


def _own_root() -> str:
    """The folder from which a child process can import this package."""
    return str(Path(__file__).resolve().parents[2])


def _hang(launched: Launched, folder: Path, processes: int, deadline: float) -> tuple[str, ...]:
    """Wait for the end; return the stacks of all processes if they hang. A process that imports a module does not
    hang.
    """
    until = time.monotonic() + _TO_IMPORT
    while not _wait(launched, folder, processes, deadline):
        stacks = _stacks(folder, processes)
        if time.monotonic() > until or not any(IMPORTING in stack for stack in stacks):
            return stacks
    return ()


def _wait(launched: Launched, folder: Path, processes: int, deadline: float) -> bool:
    """Wait until all have ended, or no event has come for `deadline` seconds. False if ranks hang.

    A process that computes without events, as in imports, or waits for a processor, gets _IMPORTING times as long.
    Ranks under mpiexec do not, since they compute while they wait.
    """
    last = event = looked = time.monotonic()
    size, busy = -1, 0.0
    failed_at = None
    while None in (codes := _exit_codes(launched)):
        now = sum(_size(folder / str(rank)) for rank in range(processes))
        worked = _processor_seconds(_pids(launched))
        passed, looked = time.monotonic() - looked, time.monotonic()
        if looked - event < _IMPORTING * deadline and computes(_pids(launched)):
            last += passed
            failed_at = failed_at and failed_at + passed
        if now != size:
            last = event = time.monotonic()
            size, busy = now, worked
        elif worked - busy >= 1 and time.monotonic() - event < _IMPORTING * deadline:
            last, busy = time.monotonic(), worked
        if any(codes):
            failed_at = failed_at or time.monotonic()
            if time.monotonic() - failed_at > _AFTER_FAILURE:
                return False
        some_left = any((folder / f"done-{rank}").exists() for rank in range(processes))
        if time.monotonic() - last > (min(deadline, _AFTER_FAILURE) if some_left else deadline):
            return False
        time.sleep(_POLL)
    return True


def _exit_codes(launched: Launched) -> list[int | None]:
    """The exit status of each process, None while it runs; or of the one process that watches all ranks."""
    if isinstance(launched, Agent):
        return [launched.process.poll()]
    return [child.poll() for child in launched.children] if isinstance(launched, Children) else []


def _pids(launched: Launched) -> list[int]:
    """Ids of processes that use no processor while they wait; not those under an agent."""
    return [child.pid for child in launched.children] if isinstance(launched, Children) else []


def _processor_seconds(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            fields = _status(pid)
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def computes(pids: Sequence[int]) -> bool:
    """Whether one of these processes runs, or waits for a processor or a disk."""
    for pid in pids:
        with suppress(OSError, IndexError):
            if _status(pid)[0] in "RD":
                return True
    return False


def _status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _size(folder: Path) -> int:
    with suppress(OSError):
        return (folder / "events.jsonl").stat().st_size
    return 0


def _stacks(folder: Path, processes: int) -> tuple[str, ...]:
    """The stack of each process, requested by a signal."""
    pids = [
        next((e["pid"] for e in JournalReader(folder / str(r)).events() if e["kind"] == "begin"), 0)
        for r in range(processes)
    ]
    files = [folder / str(rank) / "stacks.txt" for rank in range(processes)]
    before = [_text(file) for file in files]  # of an earlier request
    for pid in pids:
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
    limit = time.monotonic() + _STACKS_WITHIN
    while time.monotonic() < limit and any(
        text == early for text, early in zip(map(_text, files), before, strict=True)
    ):
        time.sleep(_POLL)
    return tuple(text[len(early) :] for text, early in zip(map(_text, files), before, strict=True))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
