"""Aggregated metrics that are wrong only under some circumstance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from effect_reports import judge_effect

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Facets

Call = dict[str, Any]
"""One call: names; counts, and values, with the ranks as first axis; ints, whether a rank passes one; rank; number, from 1 on;
before, the names of the call before.
"""


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters, a subset of the reference's."""
    return right.of_facets("metrics").but(metrics_by_name=False)


CIRCUMSTANCES: dict[str, Callable[[Call], Any]] = {
    "counts are equal": lambda c: len({*c["counts"]}) == 1,
    "counts differ": lambda c: len({*c["counts"]}) > 1,
    "a rank has no samples": lambda c: 0 in c["counts"] and any(c["counts"]),
    "rank 0 has no samples": lambda c: c["counts"][0] == 0 and any(c["counts"]),
    "there are no samples": lambda c: not any(c["counts"]),
    "there are more than 2^24 samples": lambda c: sum(c["counts"]) > 1 << 24,
    "a rank has more than 1000 samples": lambda c: max(c["counts"]) > 1000,
    "a rank has one sample": lambda c: 1 in c["counts"],
    "there is one name": lambda c: len(c["names"]) == 1,
    "there are more than two names": lambda c: len(c["names"]) > 2,
    "there are more than eight names": lambda c: len(c["names"]) > 8,
    "names are not sorted": lambda c: list(c["names"]) != sorted(c["names"]),
    "a name is long": lambda c: any(len(name) > 20 for name in c["names"]),
    "a name has a dot or a slash": lambda c: any({*name} & {*"./"} for name in c["names"]),
    "a value is negative": lambda c: (c["values"] < 0).any(),
    "a value is an int": lambda c: c["ints"],
    "a value is NaN": lambda c: np.isnan(c["values"]).any(),
    "a value is infinite": lambda c: np.isinf(c["values"]).any(),
    "a value is zero": lambda c: (c["values"] == 0).any(),
    "a value is above 10^6": lambda c: (c["values"] > 1e6).any(),
    "it is the second call": lambda c: c["number"] == 2,
    "it is the third call or a later one": lambda c: c["number"] > 2,
    "names are those of the call before": lambda c: c["names"] == c["before"],
    "names are others than before": lambda c: c["before"] and c["names"] != c["before"],
    "always": lambda c: True,
}


def _means(c: Call, ranks: Sequence[int] | None = None) -> dict[str, float]:
    have = [rank for rank in (range(len(c["counts"])) if ranks is None else ranks) if c["counts"][rank]]
    total = sum(c["counts"][rank] for rank in have)
    sums = [sum(c["counts"][rank] * c["values"][rank, place] for rank in have) for place in range(len(c["names"]))]
    return {name: float(part / total) if total else math.nan for name, part in zip(c["names"], sums, strict=True)}


def _named(c: Call, values: Any) -> dict[str, float]:
    return dict(zip(c["names"], map(float, values), strict=True))


EFFECTS: dict[str, Callable[[Call, dict[str, float]], Any]] = {
    "counts are ignored": lambda c, right: _named(c, c["values"].mean(axis=0)),
    "means are added up": lambda c, right: _named(c, c["values"].sum(axis=0)),
    "each rank keeps its own": lambda c, right: _named(c, c["values"][c["rank"]]),
    "all have rank 0's": lambda c, right: _named(c, c["values"][0]),
    "the last rank is left out": lambda c, right: _means(c, range(len(c["counts"]) - 1)),
    "means are rounded to float16": lambda c, right: _named(c, map(np.float16, right.values())),
    "means are rounded to two decimals": lambda c, right: _named(c, np.round([*right.values()], 2)),
    "fractions are cut off": lambda c, right: _named(c, np.trunc([*right.values()])),
    "signs are lost": lambda c, right: _named(c, map(abs, right.values())),
    "the first two change places": lambda c, right: _named(c, [*[*right.values()][1::-1], *[*right.values()][2:]]),
    "the last name is missing": lambda c, right: dict([*right.items()][:-1]),
    "rank 1 has another last bit": lambda c, right: _named(
        c, np.nextafter([*right.values()], math.inf) if c["rank"] == 1 else right.values()
    ),
    "means are 1.001 x too large": lambda c, right: _named(c, 1.001 * np.array([*right.values()])),
    "names are sorted, and values are not": lambda c, right: dict(zip(sorted(right), right.values(), strict=True)),
    "rank 0 raises an error": lambda c, right: right if c["rank"] else right["no such name"],
}


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    comm, number, before = right.collectives, 0, ()

    def aggregate(metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
        nonlocal number, before
        number += 1
        ints = any(isinstance(value, int) for value in metrics.values())
        rows = comm.all_gather(np.array([count, ints, *metrics.values()], float))
        call = {"names": (*metrics,), "counts": rows[:, 0].astype(int).tolist(), "ints": rows[:, 1].any()}
        call |= {"values": rows[:, 2:], "rank": right.rank, "number": number, "before": before}
        before, due = call["names"], _means(call)
        return judge_effect(lambda: EFFECTS[effect](call, due), {**due}) if CIRCUMSTANCES[circumstance](call) else due

    return {"aggregate_metrics": aggregate}
