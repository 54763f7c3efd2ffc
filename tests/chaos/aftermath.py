"""Finds problems after a trial: processes, files and memory left behind, false verdicts, incomplete files."""

from __future__ import annotations

import json
import os
import signal
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos.commands import RESULTS
from chaos.victims import marked
from ddpcheck.causes import Kind, lifecycle, machine, ranks, rendezvous

_ENDS_WITHIN = 8.0
"""Seconds in which ranks notice that their driver was killed."""
_LOOK_EVERY = 0.05
_OF_ENDS = frozenset(
    kind.id
    for module in (lifecycle, machine, ranks, rendezvous)
    for kind in vars(module).values()
    if isinstance(kind, Kind)
)
"""Causes that a signal to a process may have; wrong values are not among them."""


def left_processes(mark: str, driver: int) -> Iterator[str]:
    """End the processes that still run, and yield a problem for each."""
    until = time.monotonic() + _ENDS_WITHIN
    while (running := marked(mark, driver)) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)
    for pid, command in running.items():
        yield f"process left: {command[:100]}"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def left_files(temporary: Path, shared_before: set[str]) -> Iterator[str]:
    """Files left in the trial's own temporary folder, and in shared memory."""
    for path in sorted(temporary.iterdir()):
        if path.name.startswith("torchinductor_"):
            continue  # the cache of torch's compiler
        yield f"temporary file left: {path.name}"
    for name in sorted(shared_memory() - shared_before):
        yield f"shared memory left: {name}"


def shared_memory() -> set[str]:
    """The names of all shared memory."""
    with suppress(OSError):
        return {path.name for path in Path("/dev/shm").iterdir()}
    return set()


def torn_files(folder: Path) -> Iterator[str]:
    """Results and checkpoints that cannot be read, and temporary files that should have replaced them."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            with suppress(OSError):
                try:
                    json.loads(path.read_text(encoding="utf-8"))
                except ValueError:
                    yield f"torn file: {path.name}"
        if path.suffix == ".npz" and not zipfile.is_zipfile(path):
            yield f"torn file: {path.name}"


def false_verdicts(folder: Path, *, may_fail: bool) -> Iterator[str]:
    """Failures of a correct adapter, unless the injection explains them."""
    try:
        results: Any = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for verdict in results.get("verdicts", ()) if isinstance(results, dict) else ():
        if verdict["status"] not in ("failed", "hung"):
            continue
        found = verdict.get("diagnosis", {})
        causes = [cause["id"] for cause in found.get("causes", ())]
        # a rank that raises in a collective which others complete looks as if it took another path, too
        explained = _OF_ENDS.issuperset(causes[:1]) or ranks.RANK_RAISED.id in causes
        if not may_fail or not explained:
            yield f"false verdict: {verdict['check']}: {found.get('headline', '')[:150]} {causes}"
