"""Compares the samples of the real run's ranks with those of the data set that one process makes, part by part.

A part is a tensor of a batch, of which each sample has a row, such as inputs or labels. A sample is known by a part that no other
sample has. Only data sets that are small, quick and not random are compared: one process reads each sample twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..event_journal import Event
from ..recorded_process import Run
from ..recorder.tensors import children, digest, plain
from ..recorder.torch_random_draws import of as random_draws
from .recorded_ranks import RecordedRank

_MOST = 4096
_SECONDS = 1.0

Parts = dict[str, list[str]]
"""By the name of a part: a digest for each sample, or the sample's number."""


def note_parts(run: Run, loader: Any, batches: Sequence[tuple[RecordedRank, Event]]) -> None:
    """Note, for each rank, how many of its samples have a part that is another one in this process.

    loader: this process's own, before its first pass. batches: those that the ranks read of it, and kept.
    """
    own = _own_samples(run, loader)
    if not own:
        return
    for rank in sorted({recorded.rank for recorded, _ in batches}):
        found = [(recorded, event) for recorded, event in batches if recorded.rank == rank and event["indices"]]
        rows: Parts = {}
        indices = [index for _, event in found for index in event["indices"]]
        for recorded, event in found:
            for name, digests in _rows(recorded.journal.load(event["kept"]), event["size"]):
                rows.setdefault(name, []).extend(digests)
        rows = {name: digests for name, digests in rows.items() if name in own and len(digests) == len(indices)}
        for name, count, here, looked in _apart(rows, own, indices):
            where = {"rank": rank, "part": name, "line": found[0][1]["line"], "key": found[0][1]["key"]}
            run.note(
                "part_apart", count=count, here=here, looked=looked, samples=len(next(iter(own.values()))), **where
            )


def _apart(rows: Parts, own: Parts, indices: Sequence[int]) -> Iterator[tuple[str, int, int, int]]:
    """For each part: the samples in which it is another one, those of them in which it is the one that this process has at
    the index by which the rank read the sample, and the samples that were recognised.
    """
    places = {name: _unique(digests) for name, digests in own.items()}
    for name, digests in rows.items():
        if own[name] == [str(place) for place in range(len(own[name]))]:
            continue  # samples are numbered, and a rank may number those of its part of the data
        looked = count = here = 0
        for row, index in enumerate(indices):
            known = (places[other].get(rows[other][row]) for other in rows if other != name)
            place = next((each for each in known if each is not None), None)
            if place is None:
                continue
            looked += 1
            if digests[row] != own[name][place]:
                count += 1
                here += index < len(own[name]) and index != place and digests[row] == own[name][index]
        if count:
            yield name, count, here, looked


def _unique(digests: Sequence[str]) -> dict[str, int]:
    """The places of digests that occur once."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for place, each in enumerate(digests):
        if each in found:
            twice.add(each)
        found[each] = place
    return {each: place for each, place in found.items() if each not in twice}


def _own_samples(run: Run, loader: Any) -> Parts:
    """The parts of all samples that this process reads alike twice; empty if there are too many, or it takes too long."""
    data, collate = loader.dataset, loader.collate_fn
    if collate is None or isinstance(data, torch.utils.data.IterableDataset) or not 0 < _size(data) <= _MOST:
        return {}
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    run.loading += 1
    try:
        with random_draws(run).unwatched():
            once, again = _read(data, collate), _read(data, collate)
        return {name: digests for name, digests in once.items() if again.get(name) == digests}
    except Exception:  # the script's own code, which is asked for what it may not expect
        return {}
    finally:
        run.loading -= 1
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        np.random.set_state(state[2])


def _size(data: Any) -> int:
    return len(data) if hasattr(data, "__len__") and hasattr(data, "__getitem__") else 0


def _read(data: Any, collate: Any) -> Parts:
    until = time.monotonic() + _SECONDS
    found: Parts = {}
    for index in range(len(data)):
        if time.monotonic() > until:
            return {}
        for name, digests in _rows(collate([data[index]]), 1):
            found.setdefault(name, []).extend(digests)
    return {name: digests for name, digests in found.items() if len(digests) == len(data)}


def _rows(batch: Any, size: int, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """By the names of a batch's parts, a digest of each sample's row."""
    if isinstance(batch, torch.Tensor):
        if batch.dim() > 0 and batch.shape[0] == size:
            yield name, [_known_as(row) for row in plain(batch)]
        return
    names = [repr(key) for key in batch] if isinstance(batch, dict) else None
    for place, each in enumerate(children(batch)):
        yield from _rows(each, size, f"{name}[{names[place] if names else place}]")


def _known_as(row: torch.Tensor) -> str:
    """A whole number as its text, anything else as its digest."""
    number = row.dim() == 0 and not row.is_floating_point() and not row.is_complex()
    return str(int(row)) if number else digest(row)
