"""Results of long campaigns, as files of one JSON object a line: each line is appended as its result comes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


def read_results(file: Path) -> list[dict[str, Any]]:
    """The results so far; none if the file is not there yet."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def commit_of_tests() -> str:
    """The commit of this tree, with + if files differ from it; empty outside a repository."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
