"""The journal of one process: events as JSON lines, written at once, and tensors in files beside them.

A rank that hangs or dies leaves every event before its end. Each event's fields are documented where it is written:
`grep -rn 'note("' recorder/`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVENTS = "events.jsonl"
Event = dict[str, Any]


@dataclass
class JournalWriter:
    """Writes the journal of this process into its folder."""

    folder: Path
    began: float = field(default_factory=time.monotonic)
    written: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)  # not its parent, which a driver that has ended has removed
        self._lines = (self.folder / EVENTS).open("a", encoding="utf-8")

    def note(self, kind: str, **fields: Any) -> None:
        """Write one event. It is flushed at once, since the process may be killed at any time."""
        at = round(time.monotonic() - self.began, 6)
        self._lines.write(json.dumps({"kind": kind, "at": at, **fields}) + "\n")
        self._lines.flush()

    def keep(self, name: str, value: Any) -> None:
        """Write nested tensors to a file of this name."""
        from . import tensor_files

        path = self.folder / f"{name}.tensors"
        tensor_files.write(path, value)
        self.written += path.stat().st_size


@dataclass(frozen=True)
class JournalReader:
    """Reads the journal of a process that has ended, was killed, or hangs."""

    folder: Path

    def events(self) -> list[Event]:
        """All events in order, without an incomplete last line."""
        return list(self._events())

    def _events(self) -> Iterator[Event]:
        path = self.folder / EVENTS
        if not path.is_file():
            return
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                return

    def has(self, name: str) -> bool:
        return (self.folder / f"{name}.tensors").is_file()

    def load(self, name: str) -> Any:
        """Read a file of keep()."""
        from . import tensor_files

        return tensor_files.read(self.folder / f"{name}.tensors")
