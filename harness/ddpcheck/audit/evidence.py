"""The input of laws: the events of every process, how each run ended, and how gradients are related, step by step.

Evidence is plain data. Written as JSON, it can be judged again without running the script: ddpcheck audit --judge FILE.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ..storage.files import UnreadableFile, read_json, write_atomically
from .conditions import Source, sources_from_plain
from .event_journal import Event

SCHEMA = "ddpcheck.audit/1"
_ROUNDING_HOOKS = {"fp16_compress": "float16", "bf16_compress": "bfloat16"}
RandomStreams = Literal["different", "equal", "any"]


@dataclass(frozen=True)
class RunSeen:
    """One run: the events of each process, its stack if it hung, the last lines of output, seconds.

    whole_output: a sentence on the file with the whole output, if there is one.
    """

    events: tuple[tuple[Event, ...], ...]
    stacks: tuple[str, ...] = ()
    output: str = ""
    hung: bool = False
    seconds: float = 0.0
    whole_output: str = ""

    def of(self, rank: int, *kinds: str) -> list[Event]:
        """The events of these kinds on this rank, in order."""
        return [event for event in self.events[rank] if event["kind"] in kinds]

    def end(self, rank: int) -> Event:
        """The last event of this process; its reason is empty if the process left none."""
        ends = self.of(rank, "end")
        return ends[-1] if ends else {"kind": "end", "why": ""}

    @property
    def failed(self) -> bool:
        return self.hung or any(self.end(rank)["why"] in ("", "raised", "exit") for rank in range(len(self.events)))


def parts_alone(events: Sequence[Event]) -> Event | None:
    """The event of the first optimizer whose parameters are in parts; None if all are whole, or put together."""
    if any(event["kind"] == "gathered" for event in events):
        return None
    return next((event for event in events if event["kind"] == "sharded"), None)


@dataclass(frozen=True)
class StepSeen:
    """One optimizer step, compared with the mirrors. Distances are in tolerances: above 1 they exceed rounding.

    not_comparable: the reason why the mirrors cannot be compared in this step; empty if they can. order_matters: one
    process's gradient depends on the order of its samples, so it is no reference. v: G = sum v_r g_r on rank 0. v_off:
    the distance, by parameter. v_of_rank: the weights on every rank. w: M = sum w_r g_r for each backward of the
    window, M of one process; w_off: the largest distance. rate: the script's number that grows with the world size and
    scales every update, if it alone explains the difference. off_one, off_all: G against M = 1 and M = N, by parameter.
    factor_one, factor_all: G = factor * M, with the largest distance. part_factors: of split gradients, the factors by which
    parts of G differ from the mean of the ranks' gradients. micro_batches: the weights u of the window's backwards in
    G = sum u_k mean_r g_rk, if they differ and explain G. alike: all ranks' own gradients are equal in all bits, and not
    zero. value_apart: the line of the first value of the loss that one process computes differently.
    """

    step: int
    optimizer: int
    not_comparable: str = ""
    noise: float = 0.0
    order_matters: bool = False
    v: tuple[float, ...] = ()
    v_off: Mapping[str, float] = field(default_factory=dict)
    v_of_rank: tuple[tuple[float, ...], ...] = ()
    v_off_of_rank: tuple[float, ...] = ()
    by_parameter: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    w: tuple[tuple[float, ...], ...] = ()
    w_off: float = 0.0
    off_one: Mapping[str, float] = field(default_factory=dict)
    off_all: Mapping[str, float] = field(default_factory=dict)
    relative_off: float = 0.0
    factor_one: float = 0.0
    factor_one_off: float = 0.0
    factor_all: float = 0.0
    factor_all_off: float = 0.0
    part_factors: tuple[float, ...] = ()
    micro_batches: tuple[float, ...] = ()
    alike: bool = False
    rate: str = ""
    value_apart: str = ""


@dataclass(frozen=True)
class Evidence:
    """script: the words after `python`. far: the most steps that were compared.

    random_streams: whether the ranks' random numbers must differ or be equal; any judges neither. sources: the conditions of
    the script's files.
    """

    script: tuple[str, ...]
    ranks: int
    steps: int
    far: int
    real: RunSeen
    mirrors: Mapping[str, RunSeen] = field(default_factory=dict)
    compared: tuple[StepSeen, ...] = ()
    random_streams: RandomStreams = "different"
    sources: Mapping[str, Source] = field(default_factory=dict)

    @cached_property
    def names(self) -> dict[str, str]:
        """Parameters of the optimizers, with the names that modules give them."""
        return self.names_of_rank[0]

    @cached_property
    def names_of_rank(self) -> tuple[dict[str, str], ...]:
        """Parameters of each rank's optimizers, with the names that modules give them."""
        each_rank = self.each_rank("names")
        return tuple({key: name for event in own for key, name in event["names"].items()} for own in each_rank)

    def of_one_process(self, *kinds: str) -> list[Event]:
        """The events of these kinds in the run as one process; none if there is no such run."""
        one = self.mirrors.get("one")
        return one.of(0, *kinds) if one is not None else []

    @property
    def seconds(self) -> float:
        """The time of all runs together."""
        return sum(run.seconds for run in (self.real, *self.mirrors.values()))

    @property
    def title(self) -> str:
        """The script or module."""
        return self.script[1] if self.script[0] == "-m" else self.script[0]

    def name(self, key: str) -> str:
        """The parameter's name in the script's modules."""
        if key in self.names:
            return self.names[key]
        optimizer, _, number = key.partition(".")
        return f"parameter {number} of optimizer {optimizer}" if optimizer.isdigit() and number.isdigit() else number

    @property
    def sharded(self) -> str:
        """The reason why parameters and gradients of ranks are not compared: each rank holds a part. Empty if they are
        whole.
        """
        found = parts_alone(self.real.events[0])
        return f"each rank holds a part of the parameters of the optimizer made at {found['line']}" if found else ""

    @cached_property
    def dealt_out(self) -> str:
        """The sentence that each rank steps other whole parameters, as where ZeRO is written by hand; empty if all step the
        same.
        """
        first, *others = self.names_of_rank
        if all(own.get(key, name) == name for own in others for key, name in first.items()):
            return ""
        line = self.real.of(0, "group")[0]["line"]
        return f"the ranks' optimizers made at {line} hold different parameters"

    @property
    def gradients_apart(self) -> str:
        """The reason why gradients of ranks are not compared; empty if all ranks have those of the same whole parameters."""
        return self.sharded or self.dealt_out

    @property
    def sent_precision(self) -> str:
        """float16 or bfloat16, if a hook of torch's rounds gradients to it before sending; else empty."""
        names = [event["name"] for event in self.real.of(0, "comm_hook")]
        return next((each for name in names for start, each in _ROUNDING_HOOKS.items() if name.startswith(start)), "")

    def each_rank(self, *kinds: str) -> list[list[Event]]:
        """The events of these kinds, rank by rank."""
        return [self.real.of(rank, *kinds) for rank in range(self.ranks)]

    def aligned(self, *kinds: str) -> Iterator[tuple[Event, ...]]:
        """The n-th events of these kinds on all ranks, as long as every rank has one."""
        return zip(*self.each_rank(*kinds), strict=False)

    @cached_property
    def steps_seen(self) -> int:
        """Optimizer steps that all ranks have taken."""
        return min(len(self.real.of(rank, "step")) for rank in range(self.ranks))

    @property
    def steps_compared(self) -> int:
        """Optimizer steps whose gradients were compared with one process."""
        return sum(not step.not_comparable for step in self.compared)

    def save(self, path: Path) -> None:
        write_atomically(path, json.dumps({"schema": SCHEMA, **self.to_plain()}) + "\n")

    def to_plain(self) -> dict[str, Any]:
        """Plain data for JSON, with the largest number in place of infinity and NaN."""
        made: dict[str, Any] = _finite(asdict(self))
        return made

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Evidence:
        return Evidence(
            tuple(data["script"]), data["ranks"], data["steps"], data["far"],
            _run(data["real"]),
            {name: _run(run) for name, run in data["mirrors"].items()},
            tuple(_step(step) for step in data["compared"]),
            data.get("random_streams", "different"),
            sources_from_plain(data.get("sources", {})),
        )  # fmt: skip

    @staticmethod
    def load(path: Path) -> Evidence:
        """Inverse of save. UnreadableFile if the file is no evidence."""
        advice = "write one with: ddpcheck audit train.py --json FILE"
        try:
            data = read_json(path, advice)
            data = data.get("evidence", data)
            if data.get("schema") != SCHEMA:
                raise UnreadableFile(f"{path} has schema {data.get('schema')!r}, but should have {SCHEMA!r}; {advice}")
            return Evidence.from_plain(data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableFile(f"{path} cannot be read: {error}; {advice}") from error


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return -sys.float_info.max if value < 0 else sys.float_info.max
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def _run(data: Mapping[str, Any]) -> RunSeen:
    events = tuple(tuple(each) for each in data["events"])
    whole = data.get("whole_output", "")
    return RunSeen(events, tuple(data["stacks"]), data["output"], data["hung"], data["seconds"], whole)


def _step(data: Mapping[str, Any]) -> StepSeen:
    def fixed(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(fixed(each) for each in value)
        return {name: fixed(each) for name, each in value.items()} if isinstance(value, dict) else value

    known = {each.name for each in fields(StepSeen)}  # a later version may have added others
    return StepSeen(**{name: fixed(value) for name, value in data.items() if name in known})
