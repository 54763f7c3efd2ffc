"""The journals of the real run's ranks, as a mirror run reads them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from ..journal import Event, Journaled
from ..recorded_process import Run


@dataclass(frozen=True, eq=False)
class Source:
    """One rank of the real run."""

    rank: int
    journal: Journaled
    events: tuple[Event, ...]


@functools.cache
def _read(folder: str, rank: int) -> Source:
    journal = Journaled(Path(folder) / "real" / str(rank))
    return Source(rank, journal, tuple(journal.events()))


def sources(run: Run) -> tuple[Source, ...]:
    """The real run's ranks, in the order in which this mirror puts them together."""
    return tuple(_read(run.settings.folder, rank) for rank in run.settings.order)
