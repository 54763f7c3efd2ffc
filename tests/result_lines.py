"""Results of long campaigns, as files of one JSON object a line: each line is appended as its result comes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_results(file: Path) -> list[dict[str, Any]]:
    """The results so far; none if the file is not there yet."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
