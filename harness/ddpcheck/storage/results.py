"""The file of a run: verdicts with their environment, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..verdict import Verdict
from .environment import Environment
from .files import UnreadableFile, problem_of_data, read_record, write_atomically
from .validated import fits_its_types

SCHEMA, OLDER_SCHEMAS = "ddpcheck.results/2", ("ddpcheck.results/1",)


@dataclass(frozen=True)
class Results:
    """All verdicts of one run, with its `settings`: profile, effort, seed, deadline, launcher."""

    verdicts: tuple[Verdict, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment.here)

    def save(self, path: Path, **more: Any) -> None:
        """Write all as JSON, with the fields `more`. UnwritableFile on failure."""
        data = {
            "schema": SCHEMA,
            "environment": asdict(self.environment),
            "settings": dict(self.settings),
            "verdicts": [verdict.to_plain() for verdict in self.verdicts],
            **more,
        }
        write_atomically(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def load(path: Path) -> Results:
        """Inverse of save. UnreadableFile unless it is a result file of this or an older schema."""
        data = read_record(path, (SCHEMA, *OLDER_SCHEMAS), "write one with: ddpcheck check ADAPTER --json FILE")
        try:
            verdicts = tuple(Verdict.from_plain(verdict) for verdict in data["verdicts"])
            found = Results(verdicts, data["settings"], Environment(**data["environment"]))
            fits_its_types(found, "results")
            return found
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise UnreadableFile(f"{path} is damaged: {problem_of_data(error)}") from error
