"""Writes docs/schemas/*.json, the JSON Schemas of all files, from the declared types: python docs/site/schemas.py"""

from __future__ import annotations

import json
from pathlib import Path

from ddpcheck.storage import file_schemas
from ddpcheck.storage.json_schema import document
from ddpcheck_reports.benchmark_entries import BenchForm

FOLDER = Path(__file__).parents[1] / "schemas"
_BENCH = "Measurements of ddpcheck bench --json, in the form of pytest-benchmark."


def texts() -> dict[str, str]:
    """The text of each file of docs/schemas/, by its name."""
    every = {**file_schemas.schemas(), "ddpcheck.bench/1": document(BenchForm, "ddpcheck.bench/1", _BENCH)}
    return {
        f"{name.removeprefix('ddpcheck.').replace('/', '-')}.json": json.dumps(schema, indent=1) + "\n"
        for name, schema in every.items()
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
