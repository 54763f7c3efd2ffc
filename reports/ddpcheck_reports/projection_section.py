"""Projections of `ddpcheck project` to more ranks, with the errors of its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .document import Block, Heading, Table, Text
from .number_formatting import bytes_named, percent, significant
from .result_files import Measured

_METHOD = (
    "In brackets, the 90 % interval from the errors of the model; beside it the median and the largest error, on points that the "
    "model was not fitted to. `x ranks` is the number of ranks over the measured number; the bound is the time of the link alone."
)


def projections(measured: Measured) -> Iterator[Block]:
    for told in measured.projections:
        question = told["question"]
        yield Heading("Projection")
        yield Text(
            f"An all-reduce of {bytes_named(question['model_bytes'])}, and a step with as many bytes of gradients in "
            f"{len(question['buckets'])} buckets (weak scaling). {_METHOD}"
        )
        yield Table(
            (
                "all_reduce by",
                "ranks",
                "x ranks",
                "time (ms)",
                "held-out error",
                "bound (ms)",
                "step (ms)",
                "efficiency",
            ),
            [_row(each["source"], row) for each in told["projections"] for row in _some(each["rows"])],
        )
        yield Text("\n".join(f"- {words}" for words in told["caveats"]))


def _some(rows: Sequence[Any]) -> list[Any]:
    """The fewest ranks, the most, and one number between."""
    return [rows[place] for place in sorted({0, len(rows) // 2, len(rows) - 1})]


def _row(source: str, row: Mapping[str, Any]) -> list[str]:
    known = row["median_error"] is not None
    return [
        source,
        str(row["ranks"]),
        significant(row["times_ranks"]),
        _within(row["all_reduce"], row["all_reduce_interval"]),
        f"{percent(row['median_error'])}, worst {percent(row['worst_error'])}" if known else "-",
        significant(None if row["bound"] is None else row["bound"] * 1e3),
        _within(row["step"]["total"], row["step_interval"]),
        percent(row["efficiency"]),
    ]


def _within(seconds: float, interval: Sequence[float] | None) -> str:
    told = significant(seconds * 1e3)
    return told if interval is None else f"{told} [{', '.join(significant(end * 1e3) for end in interval)}]"
