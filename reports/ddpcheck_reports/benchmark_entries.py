"""The form of a benchmark in a result file of `ddpcheck bench`, by its kind. A file with other forms is refused when
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict, get_type_hints

from ddpcheck.storage.validated import fits


class _Common(TypedDict):
    adapter: str
    world_size: int
    cores: int
    link: NotRequired[str]
    options: NotRequired[dict[str, float | str]]


class _Rank(TypedDict):
    median: float
    slowest: float


class _Parts(TypedDict):
    step: float
    compute: float
    exposed: float
    hidden: float | None
    comm_alone: NotRequired[float | None]
    of_possible: NotRequired[float | None]
    optimizer: float


class _Timed(_Common):
    bytes: int
    dtype: NotRequired[str]
    counts: NotRequired[list[dict[str, float] | None] | None]
    p25: float
    p95: float
    worst: float
    cv: float
    spikes: int
    ranks: NotRequired[list[_Rank]]
    iterations: NotRequired[int]
    samples: NotRequired[int]
    delays: NotRequired[list[float]]
    global_seconds: float
    queue_share: NotRequired[float]


class _Startup(_Common):
    kind: Literal["startup"]
    p25: NotRequired[float]
    p95: NotRequired[float]
    worst: NotRequired[float]
    cv: NotRequired[float]
    spikes: NotRequired[int]
    ranks: NotRequired[list[_Rank]]
    global_seconds: NotRequired[float]


class _Collective(_Timed):
    kind: Literal["collective"]
    collective: str
    cpu_seconds: NotRequired[list[float]]
    count: int
    redop: str
    in_place: bool
    algbw: float | None
    busbw: float | None
    calls: NotRequired[int]
    wrong: int


class _Step(_Timed):
    kind: Literal["step"]
    model: str
    cpu_seconds: list[float]
    scaling: str
    parameters: int
    batch: int
    global_batch: int
    peak_kib: list[int]
    parts: _Parts
    timeline: list[list[list[Any]]] | None


class _Load(TypedDict):
    seconds: float
    loadavg_before: list[float]
    loadavg_after: list[float]
    steal_seconds: NotRequired[float | None]
    waited_seconds: NotRequired[float | None]


class _Environment(TypedDict):
    python: str
    platform: str
    processor: str
    cores: int
    packages: dict[str, str]
    cpu: NotRequired[str]
    memory_gib: NotRequired[float | None]
    governor: NotRequired[str]
    fingerprint: NotRequired[str]


class _Rule(TypedDict):
    rule: str
    adapter: str
    world_size: int
    bytes: int
    left: float
    right: float
    p: float | None
    verdict: str


class _Run(TypedDict):
    environment: dict[str, Any]
    settings: dict[str, Any]
    load: dict[str, Any]
    problems: list[str]
    skipped: list[str]
    consistency: list[dict[str, Any]]


class _Statistics(TypedDict):
    data: list[float]


class _Benchmark(TypedDict):
    name: str
    extra_info: _Startup | _Collective | _Step
    stats: _Statistics


class _Described(TypedDict):
    schema: Literal["ddpcheck.bench/1"]
    environment: _Environment
    settings: dict[str, Any]
    load: _Load
    archive: NotRequired[str | None]
    problems: list[str]
    skipped: list[str]
    consistency: list[_Rule]


class BenchForm(TypedDict):
    """A whole file, in pytest-benchmark's form; stats.data: seconds, one value for each launch."""

    benchmarks: list[_Benchmark]
    ddpcheck: _Described
    commit_info: NotRequired[dict[str, Any]]
    machine_info: NotRequired[dict[str, Any]]
    datetime: NotRequired[str]
    version: NotRequired[str]


_LONGEST = 86_400
_FORMS = {"startup": _Startup, "collective": _Collective, "step": _Step}


def checked(entry: Any) -> Mapping[str, Any]:
    """One item of `benchmarks` with the form of its kind. ValueError names the first part that does not fit."""
    fits(entry, dict[str, Any], "a benchmark")
    name = entry.get("name")
    fits(name, str, "the name of a benchmark")
    info = entry.get("extra_info")
    fits(info, dict[str, Any], f"{name}: extra_info")
    form = _FORMS.get(str(info.get("kind")))
    if form is None:
        raise ValueError(f"{name}: its kind is {info.get('kind')!r}, but should be one of {', '.join(_FORMS)}")
    known = _fits(info, form, f"{name}: extra_info")
    data = (entry.get("stats") or {}).get("data") if isinstance(entry.get("stats"), dict) else None
    fits(data, list[float], f"{name}: stats.data")
    if not data or not all(0 < value < _LONGEST for value in data):
        raise ValueError(f"{name}: stats.data should be seconds, each more than 0 and less than a day")
    timeline: list[list[list[Any]]] = known.get("timeline") or []
    for rank, spans in enumerate(timeline):
        for span in spans:
            fits(tuple(span), tuple[str, float, float], f"{name}: extra_info.timeline[{rank}]")
    # some values are differences
    if negative := _negative({key: value for key, value in known.items() if key != "parts"}):
        raise ValueError(f"{name}: extra_info has the number {negative:g}, but none should be below 0")
    return dict(entry)


def checked_run(run: Any) -> dict[str, Any]:
    """A file's description of its measurement. ValueError names the first part that does not fit."""
    _fits(run, _Run, "ddpcheck")
    _fits(run["environment"], _Environment, "ddpcheck.environment")
    _fits(run["load"], _Load, "ddpcheck.load")
    for number, rule in enumerate(run["consistency"]):
        _fits(rule, _Rule, f"ddpcheck.consistency[{number}]")
    if not run["load"]["loadavg_before"] or run["load"]["seconds"] < 0:
        raise ValueError("ddpcheck.load should have a loadavg_before and no negative seconds")
    return dict(run)


def _fits(data: Any, form: Any, place: str) -> dict[str, Any]:
    """The declared fields of a JSON object. ValueError if they do not fit; later versions may have more fields."""
    fits(data, dict[str, Any], place)
    known = {key: value for key, value in data.items() if key in get_type_hints(form)}
    fits(known, form, place)
    return known


def _negative(value: Any) -> float:
    """The first number below 0 in data; 0 if there is none."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next((found for found in map(_negative, value) if found), 0.0)
    return value if isinstance(value, (int, float)) and value < 0 else 0.0
