"""One file for each side in pytest-benchmark's format, for its `compare` and other tools.

`stats.data` has one value for each launch, seconds of one call or step, so `rounds` counts independent values.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.storage.files import write_atomically

from ..stats import summary
from .decision import burst_times
from .record import Record
from .result import Result, Row

_FORM = "4.0.0"  # the version of pytest-benchmark with these fields


def save_sides(record: Record, result: Result, folder: Path, raw: str) -> list[Path]:
    """Write base.json and head.json; raw: the name of the Record's file beside them."""
    paths = []
    for side, place in enumerate(record.places[:2]):
        made = {
            "machine_info": _machine(record),
            "commit_info": {"id": place.saw.get("commit", place.revision), "dirty": place.saw.get("dirty", False)},
            "benchmarks": [_benchmark(record, row, side, raw) for row in result.rows if row.times is not None],
            "datetime": datetime.now(UTC).isoformat(),
            "version": _FORM,
        }
        path = folder / f"{place.name}.json"
        write_atomically(path, json.dumps(made, indent=1) + "\n")
        paths.append(path)
    return paths


def _machine(record: Record) -> dict[str, Any]:
    here = record.environment
    return {
        "node": platform.node(),
        "processor": here.processor,
        "machine": here.processor,
        "python_version": here.python,
        "system": here.platform,
        "cpu": {"count": here.cores},
        "packages": dict(here.packages),
    }


def _benchmark(record: Record, row: Row, side: int, raw: str) -> dict[str, Any]:
    benchmark, found = row.benchmark, record.launches("measurement", row.benchmark.name)
    assert found is not None
    assert row.decision is not None
    assert row.times is not None
    name = f"{benchmark.kind}[{record.adapter}-w{record.world_size}-{benchmark.name}]"
    counts = record.seen[benchmark.name].counts[side]
    return {
        "group": benchmark.kind,
        "name": name,
        "fullname": f"ddpcheck gate::{name}",
        "params": {"adapter": record.adapter, "world_size": record.world_size, "benchmark": benchmark.name},
        "param": f"{record.adapter}-w{record.world_size}-{benchmark.name}",
        "extra_info": {
            "ranks": record.world_size,
            "bytes": benchmark.size,
            "calls_per_iteration": benchmark.calls,
            "wrong": row.wrong[side],
            "counts": [None if one is None else list(one) for one in counts],
            "log_ratios": [float(value) for value in row.times.values],
            "verdict": row.decision.verdict,
            "change": {
                "estimate": row.decision.last.estimate,
                "low": row.decision.last.low,
                "high": row.decision.last.high,
                "told_apart": row.decision.last.told_apart,
            },
            "looks": [asdict(seen) for seen in row.decision.looks],
            "confirmation": None if row.decision.confirmation is None else asdict(row.decision.confirmation),
            "detectable": row.decision.detectable,
            "design": record.design.to_plain(),
            "raw": raw,
        },
        "options": {"disable_gc": False, "timer": "monotonic", "min_rounds": record.design.looks[0], "warmup": True},
        "stats": summary((np.median(burst_times(found), axis=1)[:, side] / benchmark.calls).tolist()),
    }
