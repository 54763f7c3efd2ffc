"""The journals of the real run's ranks, as a mirror run reads them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from ..event_journal import Event, JournalReader
from ..recorded_process import Run


@dataclass(frozen=True, eq=False)
class RecordedRank:
    """One rank of the real run."""

    rank: int
    journal: JournalReader
    events: tuple[Event, ...]


@functools.cache
def _read(folder: str, rank: int) -> RecordedRank:
    journal = JournalReader(Path(folder) / "real" / str(rank))
    return RecordedRank(rank, journal, tuple(journal.events()))


def recorded_ranks(run: Run) -> tuple[RecordedRank, ...]:
    """The real run's ranks, in the order in which this mirror puts them together."""
    return tuple(_read(run.settings.folder, rank) for rank in run.settings.order)
