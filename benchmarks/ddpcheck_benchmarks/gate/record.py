"""All measurements of a gate in one file, from which `ddpcheck gate --replay FILE` decides again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ddpcheck.seeded_values import Array
from ddpcheck.storage.archives import read_arrays
from ddpcheck.storage.environment import Environment
from ddpcheck.storage.files import UnreadableFile, atomic_file

from .decision import Design
from .gate_benchmarks import Benchmark
from .launches import Seen

Stage = Literal["measurement", "confirmation", "control"]
SCHEMA = "ddpcheck.gate/1"


@dataclass(frozen=True)
class MeasuredSide:
    """One side as reported: its name, its revision, and the report of its interpreter (describe_adapter.py)."""

    name: str
    revision: str
    saw: Mapping[str, Any]


@dataclass
class Record:
    """raw: by stage and benchmark, for each launch an array of seconds (pairs, sides, iterations, ranks). The sides of
    the control are head and its twin. least: Benchmark.least_bytes. load: this machine's load average before and after.
    ended: the exit status of the signal that ended it early. counts_only: no times were asked for.
    """

    adapter: str
    world_size: int
    seed: int
    design: Design
    benchmarks: tuple[Benchmark, ...]
    places: tuple[MeasuredSide, ...]
    sends_least: bool = False
    least: dict[str, float | None] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    raw: dict[Stage, dict[str, list[Array]]] = field(default_factory=lambda: {stage: {} for stage in get_args(Stage)})
    seconds: dict[str, float] = field(default_factory=dict)
    load: tuple[float, float] = (0.0, 0.0)
    environment: Environment = field(default_factory=Environment.here)
    command: str = ""
    ended: int | None = None
    counts_only: bool = False

    def launches(self, stage: Stage, name: str) -> Array | None:
        """(launches, pairs, sides, iterations, ranks), or None if there was none."""
        found = self.raw[stage].get(name)
        return np.stack(found) if found else None

    def number_of_launches(self, stage: Stage) -> int:
        """The launches of a stage, of the benchmark that had most."""
        return max(map(len, self.raw[stage].values()), default=0)

    def minutes_of(self, stage: Stage, launches: int) -> int:
        """About how long so many launches of a stage take, by those that were made. ZeroDivisionError without any."""
        return math.ceil(self.seconds.get(stage, 0.0) / self.number_of_launches(stage) * launches / 60)

    def add(self, stage: Stage, launch: Mapping[str, Array]) -> None:
        for name, raw in launch.items():
            self.raw[stage].setdefault(name, []).append(raw)

    def save(self, path: Path) -> None:
        """Write an .npz file: an array for each stage and benchmark, and `about`, JSON."""
        about = {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in (*_PLAIN, "counts_only")},
            "design": self.design.to_plain(),
            "benchmarks": [asdict(benchmark) for benchmark in self.benchmarks],
            "places": [asdict(place) for place in self.places],
            "seen": {name: asdict(seen) for name, seen in self.seen.items()},
            "environment": asdict(self.environment),
        }
        arrays = {
            f"{stage}/{name}": np.stack(raw) for stage, measured in self.raw.items() for name, raw in measured.items()
        }
        with atomic_file(path) as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]  # names are ours

    @staticmethod
    def load_from(path: Path) -> Record:
        """Inverse of save. UnreadableFile if the file is not such a record."""
        advice = "ddpcheck gate --json DIR writes one"
        try:
            arrays = read_arrays(path, advice)
            about = json.loads(str(arrays.pop("about")))
            if about["schema"] != SCHEMA:
                raise UnreadableFile(f"{path} has schema {about['schema']!r}, but should have {SCHEMA!r}")
            return _made(about, arrays)
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UnreadableFile(f"{path} cannot be read: {error}; {advice}") from error


_PLAIN = ("adapter", "world_size", "seed", "sends_least", "least", "seconds", "load", "command")


def _made(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> Record:
    plain: dict[str, Any] = {name: about[name] for name in _PLAIN}
    plain["load"] = tuple(plain["load"])
    record = Record(
        **plain,
        design=Design.from_plain(about["design"]),
        benchmarks=tuple(Benchmark(**data) for data in about["benchmarks"]),
        places=tuple(MeasuredSide(**data) for data in about["places"]),
        environment=Environment(**about["environment"]),
        counts_only=about.get("counts_only", not arrays),  # older records do not tell
    )
    for name, data in about["seen"].items():
        base, head = ([None if one is None else tuple(one) for one in side] for side in data["counts"])
        record.seen[name] = Seen(data["wrong"], (base, head))
    for place, raw in arrays.items():
        stage, _, name = place.partition("/")
        record.raw[stage][name] = list(raw)  # type: ignore[index]  # KeyError is caught by load_from
    return record
