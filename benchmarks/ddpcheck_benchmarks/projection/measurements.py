"""Measured times from pytest-benchmark's JSON files, as `ddpcheck bench` writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.storage.files import UnreadableFile, read_json

HINT = "write one with: ddpcheck bench ADAPTER --json FILE"
_LONGEST = 1e9
QUANTILE = 0.25
"""Interference only adds time, so the low quartile describes the program better than the median."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of one collective: one of `seconds` for each launch or iteration."""

    adapter: str
    collective: str
    world_size: int
    bytes: int
    in_place: bool
    cores: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement for the fit: a time for a world size and a number of bytes."""

    world_size: int
    bytes: int
    cores: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Series:
    """All measurements of one collective of one adapter, by rising world size and bytes."""

    adapter: str
    collective: str
    in_place: bool
    measurements: tuple[Measurement, ...]

    @property
    def title(self) -> str:
        return f"{self.adapter}, {self.collective}{', in place' if self.in_place else ''}"

    @property
    def world_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({each.world_size for each in self.measurements}))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({each.bytes for each in self.measurements}))

    @property
    def launches(self) -> int:
        """The least number of times of any measurement."""
        return min(len(each.seconds) for each in self.measurements)

    def points(self) -> tuple[Point, ...]:
        return tuple(_point(each, float(np.quantile(each.seconds, QUANTILE))) for each in self.measurements)

    def resampled(self, random: np.random.Generator) -> tuple[Point, ...]:
        """Points of launches drawn with replacement. All sizes of a world size use the same launches, since one launch
        measures them all.
        """
        points: list[Point] = []
        for world_size in self.world_sizes:
            group = [each for each in self.measurements if each.world_size == world_size]
            shares = random.random(max(len(each.seconds) for each in group))
            for length in sorted({len(each.seconds) for each in group}):
                alike = [each for each in group if len(each.seconds) == length]
                drawn = (shares[:length] * length).astype(np.intp)
                times = np.quantile(np.array([each.seconds for each in alike])[:, drawn], QUANTILE, axis=1)
                points += [_point(each, float(time)) for each, time in zip(alike, times, strict=True)]
        return tuple(points)


@dataclass(frozen=True, slots=True)
class ModelSteps:
    """Steps of one rank with one model. bytes: of its gradients. seconds: by adapter."""

    model: str
    bytes: int
    seconds: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Benchmarks:
    """The content of a file: series of collectives with two ranks or more, and steps of one rank with the largest measured
    model. adapters: all that were measured.
    """

    series: tuple[Series, ...]
    one_rank_steps: ModelSteps | None = None
    adapters: frozenset[str] = frozenset()


def load(paths: Iterable[Path]) -> Benchmarks:
    """Everything in the files together. UnreadableFile if one is malformed, or none has a collective."""
    measurements: list[Measurement] = []
    steps: dict[tuple[int, str], dict[str, tuple[float, ...]]] = {}
    adapters = set[str]()
    for path in paths:
        for benchmark in _benchmarks(path):
            try:
                extra = benchmark.get("extra_info", {})
                if extra.get("kind") == "collective":
                    measurements.append(_measurement(benchmark))
                elif extra.get("kind") == "step" and _whole(extra, "world_size", 1) == 1:
                    model = _whole(extra, "bytes", 1), str(extra["model"])
                    steps.setdefault(model, {})[str(extra["adapter"])] = _seconds(benchmark)
                adapters.update([str(extra["adapter"])] if "adapter" in extra else [])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                name = benchmark.get("name", "a benchmark") if isinstance(benchmark, dict) else "a benchmark"
                raise UnreadableFile(f"{path}: {name} is damaged: {error!r}; {HINT}") from error
    if not measurements:
        raise UnreadableFile(
            f"no collective in {', '.join(map(str, paths))}: projections start from the times of collectives, which not every "
            "adapter offers; write a file with: ddpcheck bench torch_ddp --json FILE"
        )
    largest = max(steps, default=None)
    of_one = None if largest is None else ModelSteps(largest[1], largest[0], steps[largest])
    return Benchmarks(_series(measurements), of_one, frozenset(adapters))


def _series(measurements: Sequence[Measurement]) -> tuple[Series, ...]:
    found: dict[tuple[str, str, bool], list[Measurement]] = {}
    for each in measurements:
        if each.world_size > 1:  # one rank sends nothing
            found.setdefault((each.adapter, each.collective, each.in_place), []).append(each)
    return tuple(
        Series(*key, tuple(sorted(group, key=lambda each: (each.world_size, each.bytes))))
        for key, group in found.items()
    )


def _benchmarks(path: Path) -> list[Any]:
    data = read_json(path, HINT)
    if not isinstance(data, dict) or not isinstance(data.get("benchmarks"), list):
        raise UnreadableFile(f"{path} is not a file of pytest-benchmark: it has no list of benchmarks; {HINT}")
    found: list[Any] = data["benchmarks"]
    return found


def _measurement(benchmark: Mapping[str, Any]) -> Measurement:
    extra = benchmark["extra_info"]
    return Measurement(
        str(extra["adapter"]),
        str(extra["collective"]),
        _whole(extra, "world_size", 1),
        _whole(extra, "bytes", 0),
        bool(extra.get("in_place", False)),
        _whole(extra, "cores", 1),
        _seconds(benchmark),
    )


def _whole(extra: Mapping[str, Any], name: str, least: int) -> int:
    value = extra[name]
    if type(value) is not int or value < least:
        raise ValueError(f"{name} should be a whole number, {least} or more")
    return value


def _seconds(benchmark: Mapping[str, Any]) -> tuple[float, ...]:
    seconds = benchmark["stats"]["data"]
    if not isinstance(seconds, list) or not seconds or not all(map(_is_a_time, seconds)):
        raise ValueError(f"stats.data should be seconds, each more than 0 and at most {_LONGEST:g}")
    return tuple(map(float, seconds))


def _is_a_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST


def _point(measurement: Measurement, seconds: float) -> Point:
    return Point(measurement.world_size, measurement.bytes, measurement.cores, seconds)
