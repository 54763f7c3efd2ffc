"""The folder for failing Jobs, and for texts that are printed in part, unless a command or a caller names another."""

from __future__ import annotations

from pathlib import Path

FAILURES_FOLDER = "ddpcheck-failures"


def file_of_rank(name: str, rank: int | None) -> Path:
    """The file for a text of this rank. None: there is one process only."""
    return Path(FAILURES_FOLDER, f"{name}.txt" if rank is None else f"{name}-rank{rank}.txt")
