"""Converts marks to steps: the events of an mpi4py script that laws judge, and the arrays of the replica.

An array belongs to the replica if it exists at the first mark, changes, and either matches a collective or is changed
in place. It matches if a sent buffer has as many elements as the array, alone or with its neighbours in the same
container. It is changed in place if most of its elements change while the array stays the same object. An array that
enters a reduction and differs between ranks is a gradient.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..event_journal import Event
from ..request import ScriptRun
from .marked_batches import REPLICA
from .marked_batches import read as kept_as

Marks = list[Event]
_DENSE = 0.5


def read(ended: ScriptRun) -> ScriptRun:
    """The same run with state, step, backward and batch events in place of marks. For the real run, also names the
    replica.
    """
    marks = [[event for event in events if event["kind"] == "mark"] for events in ended.processes]
    names = ended.folder.parent / "real" / REPLICA
    if ended.name == "real":
        paths = replica_of(marks, ended.processes, ended.folder)
        names.write_text("\n".join(paths), encoding="utf-8")
    else:
        paths = names.read_text(encoding="utf-8").splitlines()
    return replace(
        ended, processes=tuple(_standard(events, marks, paths, rank) for rank, events in enumerate(ended.processes))
    )


def replica_of(marks: Sequence[Marks], processes: Sequence[Sequence[Event]], folder: Path) -> list[str]:
    """The paths of parameters and optimizer state, in order."""
    if not all(len(own) > 1 for own in marks):
        return []
    first = [own[0]["arrays"] for own in marks]
    there = [path for path in first[0] if all(path in each and each[path][1] == first[0][path][1] for each in first)]
    candidates = [path for path in there if all(_changes(own, path) for own in marks)]
    candidates = [path for path in candidates if not _is_gradient(marks, path)]
    sent = _sent_sizes(processes) | {size for own in marks for event in own for size in _totals(event["sent"])}
    fitting = _fitting(candidates, marks[0][0]["containers"], first[0], sent)
    return [path for path in candidates if path in fitting or _in_place(marks[0], path, folder)]


def _changes(own: Marks, path: str) -> bool:
    return len({event["arrays"][path][0] for event in own if path in event["arrays"]}) > 1


def _is_gradient(marks: Sequence[Marks], path: str) -> bool:
    """Whether an array enters a reduction, or is repeatedly set to zero, and is not an averaged parameter."""
    zeros = [path in event["zero"] for event in marks[0]]
    if zeros[0] and any(not a and b for a, b in pairwise(zeros)):
        return True
    entering = [path in event["own"] for own in marks for event in own if event["sent"]]
    if 2 * sum(entering) <= len(entering):  # once may be chance
        return False
    start = {own[0]["arrays"][path][0] for own in marks}
    return zeros[0] or len(start) > 1 or _differs_later(marks, path)


def _differs_later(marks: Sequence[Marks], path: str) -> bool:
    return any(
        len({event["arrays"].get(path, [""])[0] for event in together}) > 1 for together in zip(*marks, strict=False)
    )


def _sent_sizes(processes: Sequence[Sequence[Event]]) -> set[int]:
    """The numbers of elements of broadcasts and reductions."""
    every = [event for events in processes for event in events]
    buffers = {
        event["shape"][0]
        for event in every
        if event["kind"] == "collective" and event.get("shape") and event["dtype"].startswith("float")
    }
    objects = {size for event in every if event["kind"] == "left" for size in event["sizes"]}
    return {size for size in buffers | objects if size > 1}


def _totals(sent: Sequence[Any]) -> set[int]:
    """The elements of each reduction of a step, and of all reductions of one line."""
    lines: dict[str, int] = defaultdict(int)
    for line, size in sent:
        lines[line] += size
    return {size for _, size in sent if size > 1} | {size for size in lines.values() if size > 1}


def _fitting(candidates: Sequence[str], containers: dict[str, str], arrays: dict[str, Any], sent: set[int]) -> set[str]:
    """Arrays with such a size, alone or with neighbours in their container."""
    found: set[str] = set()
    by_container: dict[str, list[str]] = defaultdict(list)
    for path in candidates:
        by_container[containers.get(path, "")].append(path)
    for paths in by_container.values():
        for start in range(len(paths)):
            total = 0
            for end in range(start, len(paths)):
                total += arrays[paths[end]][1]
                if total in sent:
                    found.update(paths[start : end + 1])
    return found


def _in_place(own: Marks, path: str, folder: Path) -> bool:
    """Whether most elements change while the array stays the same object."""
    for before, after in pairwise(own):
        there = [event["arrays"].get(path) for event in (before, after)]
        if there[0] is None or there[1] is None or there[0][2] != there[1][2] or there[0][0] == there[1][0]:
            continue
        values = [kept_as(folder / "0", f"arrays-{event['number']}") for event in (before, after)]
        if any(each is None for each in values):
            return False
        return bool(np.mean(values[0][path] != values[1][path]) >= _DENSE)
    return False


def steps_of(own: Marks, paths: Sequence[str]) -> list[tuple[int, int]]:
    """The marks at the start and end of each step: the replica changes between a mark and the next."""
    found, start = [], 0
    for number, (before, after) in enumerate(pairwise(own)):
        if any(before["arrays"].get(path, [""])[0] != after["arrays"].get(path, [""])[0] for path in paths):
            found.append((start, number + 1))
            start = number + 1
    return found


def _standard(events: Sequence[Event], marks: Sequence[Marks], paths: Sequence[str], rank: int) -> tuple[Event, ...]:
    own = marks[rank]
    every = [steps_of(each, paths) for each in marks]
    steps = every[rank]
    ends = {end: number for number, (_, end) in enumerate(steps)}
    made: list[Event] = []
    step = 0
    named = False
    for event in events:
        if event["kind"] != "mark":
            counted = "step" in event and event["kind"] not in ("end", "misfit")
            made.append({**event, "step": step} if counted else event)
            continue
        number, at = event["number"], event["at"]
        if event["numbers"]:
            made.append({"kind": "numbers", "at": at, "values": event["numbers"]})
        if number in ends:
            made += _step(event, own, marks, paths, ends[number], steps[ends[number]])
            step = ends[number] + 1
        if paths and not named:
            named = True
            names = {f"0.{place}": path for place, path in enumerate(paths)}
            made.append({"kind": "names", "at": at, "names": names})
        if paths and (number == 0 or number in ends):
            digests = {f"0.{place}": event["arrays"].get(path, [""])[0] for place, path in enumerate(paths)}
            made.append(
                {"kind": "state", "at": at, "number": step, "step": step, "digests": digests, "grad": True, "line": event["line"]}
            )  # fmt: skip
        made.append(
            {"kind": "batch", "at": at, "loader": -1, "key": "marked", "passed": 0, "number": number, "step": step,
             "size": event["size"], "indices": None, "digest": event["digest"], "rows": event["rows"],
             "kept": event["kept"], "grad": True, "line": event["line"]}
        )  # fmt: skip
    return tuple(made)


def _step(
    event: Event, own: Marks, marks: Sequence[Marks], paths: Sequence[str], step: int, ends: tuple[int, int]
) -> Iterator[Event]:
    start, end = ends
    line = _line_of_reduction(own[start + 1 : end + 1]) or own[end - 1]["line"]
    parameters = [event["arrays"].get(path, [""])[0] for path in paths]
    unreduced = _unreduced(marks, paths, start, end)
    shown = [digest if path in unreduced else "" for path, digest in zip(paths, parameters, strict=True)]
    yield {
        "kind": "backward", "at": event["at"], "step": step, "number": 0, "line": line, "sync": [], "loss": None,
        "scale": 1.0, "root": "",
    }  # fmt: skip
    yield {
        "kind": "step", "at": event["at"], "step": step, "optimizer": 0, "name": "", "groups": [], "needs": [],
        "grads": shown, "zero": False, "finite": event["finite"], "covered": ["none"] * len(paths),
        "parts": [], "clipped": False, "backwards": 1, "precision": "", "line": line, "after": parameters,
    }  # fmt: skip


def _line_of_reduction(window: Marks) -> str:
    """The line that reduced the most elements."""
    lines: dict[str, int] = defaultdict(int)
    for event in window:
        for line, size in event["sent"]:
            lines[line] += size
    return max(lines, key=lambda line: lines[line]) if lines else ""


def _unreduced(marks: Sequence[Marks], paths: Sequence[str], start: int, end: int) -> set[str]:
    """Arrays with different changes on ranks after an equal start, which no reduction of the step covers."""
    together = [(own[start], own[end]) for own in marks if len(own) > end]
    if len(together) < len(marks) or not paths:
        return set()
    before = [[pair[0]["arrays"].get(path, [""])[0] for path in paths] for pair in together]
    if any(each != before[0] for each in before[1:]):
        return set()
    arrays, containers = marks[0][0]["arrays"], marks[0][0]["containers"]
    sent = {size for own in marks for event in own[start + 1 : end + 1] for size in _totals(event["sent"])}
    covered = _fitting(paths, containers, arrays, sent)
    differing = {path for path in paths if len({pair[1]["arrays"].get(path, [""])[0] for pair in together}) > 1}
    return differing - covered
