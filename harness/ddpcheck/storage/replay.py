"""The results of a Job as text, operation by operation and rank by rank, as `ddpcheck replay` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..counted_nouns import ranks_named
from ..job import Job
from ..seeded_values import Array
from ..trace import RankTrace, Trace
from .dataclass_json import to_plain
from .operation_words import fields, in_words

_SHOWN = 8


def described(job: Job, trace: Trace) -> Iterator[str]:
    """The results of each rank, by operation; ranks with equal results share a line."""
    if job.model is not None:
        yield f"model: {fields(to_plain(job.model))}"
    if job.data is not None and (job.data.poisoned or job.data.loud):
        yield in_words(to_plain(job.data))
    if job.start is not None:
        yield f"started afresh{in_words(to_plain(job.start)).removeprefix(job.start.kind)}"
    if job.over_tcp:
        yield "its ranks send over TCP"
    for position, operation in enumerate(job.operations):
        yield f"{position:3} {in_words(to_plain(operation))}"
        for line in _outcomes(position, trace):
            yield f"      {line}"
    for rank in trace.ranks:
        failed = "" if rank.outcome == "done" else f"\n{_indented(rank.error or rank.stack)}"
        yield f"rank {rank.rank}: {rank.outcome}{failed}"


def _outcomes(position: int, trace: Trace) -> Iterator[str]:
    """The results of the ranks, or that they did not finish."""
    stories: dict[str, list[int]] = {}
    for rank in trace.ranks:
        stories.setdefault(_story(rank, position), []).append(rank.rank)
    for story, ranks in stories.items():
        if not story:
            continue
        who = "all ranks" if len(ranks) == len(trace.ranks) > 1 else ranks_named(ranks)
        lines = story.splitlines()
        yield f"{who}: {lines[0]}" if len(lines) == 1 else f"{who}:"
        yield from (f"    {line}" for line in lines if len(lines) > 1)


def _story(rank: RankTrace, position: int) -> str:
    for record in rank.records:
        if record.operation == position:
            return f"{rank.outcome} here" if record.left is None else "\n".join(_lines(record.values))
    return "did not get here"


def _lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name} = {summarised(value)}"


def summarised(value: Any) -> str:
    """A value in one line: dtype, shape and the first elements of an array."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
        return "; ".join(summarised(item) for item in value)
    return "none" if value is None else str(value)


def _array(array: Array) -> str:
    flat = array.reshape(-1)
    numbers = " ".join(f"{number:.9g}" if array.dtype.kind == "f" else str(number) for number in flat[:_SHOWN])
    return f"{array.dtype}{list(array.shape)} {numbers}" + " ..." * (flat.size > _SHOWN)


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.rstrip().splitlines())
