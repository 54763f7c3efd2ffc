"""One audit from the request to the evidence: the real run, then the mirrors, at most one per core at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..storage.environment import visible_cores
from .conditions import sources_of
from .evidence import Evidence, parts_alone
from .recorded_process import RunSettings, root_of
from .request import Request, ScriptRun
from .script_kinds import ScriptKind, kind_of
from .script_runs import audited, mirror_run, mirrors_of, real_run, resumed_runs


def conduct(
    request: Request, keep: Path | None = None, progress: Callable[[str], None] = lambda text: None
) -> Evidence:
    """Run the script and its mirrors, and compare. keep: a folder for the journals. progress: is called with progress
    messages.
    """
    found = _conducted(request, keep, progress)
    events = (event for events in found.real.events for event in events)
    return replace(found, random_streams=request.random_streams, sources=sources_of(events, root_of(request.script)))


def _conducted(request: Request, keep: Path | None, progress: Callable[[str], None]) -> Evidence:
    with audited(keep) as folder:
        progress(f"{request.name} on {request.ranks} ranks")
        kind = kind_of(request.script)
        real = kind.read(real_run(request, kind, folder))
        if not request.steps or not _stepped(real) or _sharded(real):
            return kind.evidence_of(request, folder, real, _again(request, kind, folder, progress))
        settings = _mirrors(request, folder, real)
        runs, most = len(settings), request.ranks * _peak_memory(real) / 2**30
        progress(f"{request.name} as one process, in {runs} runs, each with at most {most:.1f} GiB of memory")
        mirrors = _all_mirrors(request, kind, settings)
        if _wants_turns(request, real, mirrors[0]):
            progress(f"{request.name} as one process again, with the ranks' batches in turn")
            request = replace(request, in_turn=True)
            mirrors = _all_mirrors(request, kind, _mirrors(request, folder, real))
        return kind.evidence_of(request, folder, real, (*mirrors, *_again(request, kind, folder, progress)))


def _again(request: Request, kind: ScriptKind, folder: Path, progress: Callable[[str], None]) -> tuple[ScriptRun, ...]:
    """The interrupted and the resumed run, if they were requested."""
    if request.resumed is None:
        return ()
    progress(f"{request.name} interrupted and resumed")
    return resumed_runs(request, kind, folder)


def _all_mirrors(request: Request, kind: ScriptKind, settings: tuple[RunSettings, ...]) -> tuple[ScriptRun, ...]:
    with ThreadPoolExecutor(min(visible_cores(), 3)) as pool:
        return tuple(pool.map(lambda each: kind.read(mirror_run(request, kind, each)), settings))


def _stepped(run: ScriptRun) -> bool:
    return all(any(event["kind"] == "step" for event in events) for events in run.processes)


def _peak_memory(run: ScriptRun) -> int:
    """Bytes of the largest rank: one process with the batches of N ranks holds at most N times as many."""
    return max(
        (event.get("memory", 0) for events in run.processes for event in events if event["kind"] == "end"), default=0
    )


def _sharded(run: ScriptRun) -> bool:
    """Whether ranks hold parts of parameters, which cannot be compared with a single process's."""
    return parts_alone(run.processes[0]) is not None


def _mirrors(request: Request, folder: Path, real: ScriptRun) -> tuple[RunSettings, ...]:
    """The mirrors to run. M = N is left out if parameters are split, because identical ranks hold no different
    parts.
    """
    split = any(event["kind"] == "sharded" for event in real.processes[0])
    return tuple(each for each in mirrors_of(request, folder) if each.mirror_size == 1 or not split)


def _wants_turns(request: Request, real: ScriptRun, one: ScriptRun) -> bool:
    """Whether one process makes N times the backward passes of a rank: its accumulation is divided by the world
    size.
    """
    first = [next((e for e in run.processes[0] if e["kind"] == "step"), None) for run in (real, one)]
    rank, alone = (0 if event is None else event["backwards"] for event in first)
    return not request.in_turn and rank > 0 and alone == rank * request.ranks
