"""Results in pytest-benchmark's format, written after each launch, so that an interruption loses at most one.

One benchmark is one point: its stats.data has one value for each launch, in seconds; other values are in extra_info.
The key "ddpcheck", which pytest-benchmark ignores, holds the machine, the settings, and the cases that could not be
measured. An archive of arrays (.npz) beside the file holds every rank's times, iteration by iteration:
NAME/LAUNCH/begin and /end, of shape (ranks, iterations), in seconds since the first began.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ddpcheck.storage.files import UnwritableFile, atomic_file, write_atomically

from .machine import Load, commit, described, pytest_machine_info
from .stats import summary

SCHEMA = "ddpcheck.bench/1"
VERSION = "5.3.1"
"""The version of pytest-benchmark with this format."""


@dataclass
class Point:
    """Measurements of one case: one value per launch, and their context."""

    name: str
    group: str
    info: dict[str, Any]
    data: list[float] = field(default_factory=list)

    def spread(self, launch: Mapping[str, Any]) -> None:
        """Add rank_times.spread() of one launch, and its queue_share.

        Numbers are medians over launches; `worst` is the largest.
        """
        every: list[dict[str, Any]] = self.info.setdefault("within", [])
        every.append({name: value for name, value in launch.items() if name != "ranks"})
        self.info.update(launch)
        for name in ("p25", "p95", "cv", "global_seconds"):
            self.info[name] = median(one[name] for one in every)
        shares = [one["queue_share"] for one in every if one["queue_share"] is not None]
        self.info["queue_share"] = median(shares) if shares else None
        self.info["worst"] = max(one["worst"] for one in every)
        self.info["spikes"] = sum(one["spikes"] for one in every)
        self.info["samples"] = sum(one["iterations"] for one in every)

    def to_plain(self) -> dict[str, Any]:
        family, _, rest = self.name.partition("[")
        return {
            "group": self.group,
            "name": self.name,
            "fullname": f"ddpcheck bench::{self.name}",
            "params": {},
            "param": rest.rstrip("]") or None,
            "extra_info": {"schema": SCHEMA, "launches": len(self.data), **self.info},
            "options": {"timer": "ranks", "family": family},
            "stats": summary(self.data),
        }


class Results:
    """All points of one run, and their file, if any."""

    def __init__(self, settings: Mapping[str, Any], path: Path | None = None) -> None:
        self.points: dict[str, Point] = {}
        self.problems: list[str] = []
        self.skipped: list[str] = []
        self.consistency: list[dict[str, Any]] = []
        self.environment = described()
        self.unwritable = ""
        self._settings = dict(settings)
        self._path = path
        self._load = Load()
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def add(self, point: Point, value: float) -> Point:
        """Add one launch's value to a point, which the first launch creates."""
        known = self.points.setdefault(point.name, point)
        known.data.append(value)
        return known

    def keep(self, name: str, begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> None:
        """Arrays (ranks, iterations) of one launch, for the archive."""
        point = self.points.get(name)
        launch, first = len(point.data) if point else 0, begin.min()
        self._arrays[f"{name}/{launch}/begin"] = begin - first
        self._arrays[f"{name}/{launch}/end"] = end - first

    def skip(self, what: str) -> None:
        self.skipped += [] if what in self.skipped else [what]

    def save(self) -> None:
        """Write all results so far. If that fails, `unwritable` holds the reason, and measuring continues."""
        if self._path is None:
            return
        self.unwritable = ""
        try:
            self._save(self._path)
        except UnwritableFile as error:
            self.unwritable = str(error)

    def _save(self, path: Path) -> None:
        if self._arrays:
            with atomic_file(self._beside(".npz")) as file:
                np.savez_compressed(file, **self._arrays)  # type: ignore[arg-type]
        write_atomically(path, json.dumps(self.to_plain(), indent=1, ensure_ascii=False) + "\n")

    def to_plain(self) -> dict[str, Any]:
        return {
            "machine_info": pytest_machine_info(self.environment),
            "commit_info": commit(),
            "benchmarks": [point.to_plain() for point in self.sorted()],
            "datetime": self._load.started,
            "version": VERSION,
            "ddpcheck": {
                "schema": SCHEMA,
                "environment": self.environment,
                "settings": self._settings,
                "load": self._load.so_far(),
                "archive": self._beside(".npz").name if self._arrays and self._path else None,
                "problems": self.problems,
                "skipped": self.skipped,
                "consistency": self.consistency,
            },
        }

    def sorted(self) -> Sequence[Point]:
        return [point for _, point in sorted(self.points.items(), key=lambda item: _order(item[1]))]

    def _beside(self, suffix: str) -> Path:
        assert self._path is not None
        return self._path.with_name(self._path.name.removesuffix(".json") + suffix)


def _order(point: Point) -> tuple[Any, ...]:
    info = point.info
    return (info["kind"], point.group, info["adapter"], info["world_size"], info.get("bytes", 0), point.name)
