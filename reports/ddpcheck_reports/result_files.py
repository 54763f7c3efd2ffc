"""Reads result files: all data of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ddpcheck.storage.archives import read_arrays
from ddpcheck.storage.files import UnreadableFile, read_json

from .benchmark_entries import checked, checked_run

BENCH = "ddpcheck.bench/"
_ADVICE = "write one with: ddpcheck bench ADAPTERS --json FILE"
_VERDICTS = "ddpcheck.results"
"""The schema of files of verdicts, without its number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One benchmark: its name, its facts, and one value in seconds for each launch."""

    name: str
    info: dict[str, Any]
    data: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return median(self.data)

    @property
    def crowded(self) -> bool:
        """Whether there were more ranks than cores. On emulated hosts this does not count, as ranks wait most of the
        time.
        """
        return bool(self.info["world_size"] > self.info["cores"]) and not self.linked

    @property
    def linked(self) -> bool:
        """Whether the ranks ran on emulated hosts."""
        return bool(self.info.get("link"))


@dataclass
class Measured:
    """The content of several files; `runs` are their descriptions, `projections` are files of `ddpcheck project`.

    samples: seconds of every training step on its slowest rank, in all launches, by the name of the entry; from the
    archive beside a file, if it exists.
    """

    entries: list[Entry] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    projections: list[dict[str, Any]] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)

    def of(self, kind: str, *, linked: bool = False) -> list[Entry]:
        return [entry for entry in self.entries if entry.info["kind"] == kind and entry.linked == linked]

    def told(self, key: str) -> list[Any]:
        """The lists of all runs under one key, concatenated."""
        return [item for run in self.runs for item in run.get(key) or []]


def read(paths: Iterable[Path]) -> Measured:
    """Read all files. UnreadableFile if one is not a result file, or if two contradict each other."""
    found = Measured()
    for path in paths:
        data = _json(path)
        run = data.get("ddpcheck")
        if isinstance(run, dict) and str(run.get("schema", "")).startswith(BENCH):
            found.runs.append(
                {**_run(run, path), "commit": _object(data.get("commit_info")), "date": str(data.get("datetime", ""))}
            )
            found.entries += [_entry(entry, path) for entry in _list(data, "benchmarks", path)]
            if isinstance(run.get("archive"), str) and (archive := path.with_name(Path(run["archive"]).name)).exists():
                found.samples |= _samples(archive)
        elif str(data.get("schema", "")).startswith("ddpcheck.project"):
            found.projections.append(data)
        elif str(data.get("schema", "")).startswith(_VERDICTS):
            raise UnreadableFile(
                f"{path} holds verdicts, not measurements; show them with: ddpcheck report --html {path}"
            )
        else:
            raise UnreadableFile(f"{path} holds no measurements; {_ADVICE}")
    names = [entry.name for entry in found.entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UnreadableFile(
            f"{twice[0]} is in two files: make a report of each, or compare them with pytest-benchmark"
        )
    found.entries.sort(key=_order)
    return found


def holds_measurements(path: Path) -> bool:
    """Whether a file is one of `ddpcheck bench`. UnreadableFile if it is no JSON file."""
    data = read_json(path, "write one with: ddpcheck check ADAPTER --json FILE")
    run = data.get("ddpcheck") if isinstance(data, dict) else None
    return isinstance(run, dict) and str(run.get("schema", "")).startswith(BENCH)


def _samples(archive: Path) -> dict[str, list[float]]:
    """The seconds of each step, from the archive of raw times. UnreadableFile if it is damaged."""
    found: dict[str, list[float]] = {}
    arrays = read_arrays(archive, _ADVICE)
    try:
        for key in sorted(arrays):
            name, launch, stamp = key.rsplit("/", 2)
            if name.startswith("step[") and stamp == "begin":
                longest = (arrays[f"{name}/{launch}/end"] - arrays[key]).max(axis=0)
                found.setdefault(name, []).extend(map(float, longest))
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableFile(f"{archive} holds no raw times: {error}; {_ADVICE}") from error
    return found


def _json(path: Path) -> dict[str, Any]:
    data = read_json(path, _ADVICE)
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path} holds no measurements; {_ADVICE}")
    return data


def _entry(data: dict[str, Any], path: Path) -> Entry:
    try:
        checked(data)
    except ValueError as error:
        raise UnreadableFile(f"{path}: {error}") from error
    return Entry(data["name"], data["extra_info"], tuple(data["stats"]["data"]))


def _run(run: Any, path: Path) -> dict[str, Any]:
    try:
        return checked_run(run)
    except ValueError as error:
        raise UnreadableFile(f"{path}: {error}") from error


def _object(data: Any) -> dict[str, Any]:
    return data if isinstance(data, dict) else {}


def _list(data: dict[str, Any], name: str, path: Path) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise UnreadableFile(f"{path} should have a list {name!r}, but has {type(found).__name__}")
    return found


def _order(entry: Entry) -> tuple[Any, ...]:
    info = entry.info
    return (info["kind"], info.get("collective", ""), info.get("parameters", 0), info["world_size"], info["adapter"],
            info.get("bytes", 0), entry.name)  # fmt: skip


def distinct(entries: Iterable[Entry], of: Callable[[Entry], Any]) -> Sequence[Any]:
    """The distinct values, in ascending order."""
    return sorted(set(map(of, entries)))
