"""Replaces the batches of a loader by the batches of all ranks, put together."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..event_journal import Event
from ..recorded_process import Run
from ..recorder.tensors import digest_of_nest, mapped, nudged
from .large_batch import Misfit, put_together, rolled
from .recorded_ranks import RecordedRank, recorded_ranks
from .sample_parts import note_parts


class MirroredBatches:
    """The iterator of a DataLoader, in a mirror run. key: of the loader. passed: the passes over it before this one."""

    def __init__(self, run: Run, key: str, passed: int, original: Any) -> None:
        self._run, self._key, self._original = run, _recorded_key(run, key, original), original
        self._pass = passed
        self._given = 0
        self._turn = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._original)

    def __next__(self) -> Any:
        run = self._run
        found = _at(run, self._key, self._pass, self._given)
        if self._pass == self._given == run.step == 0 and run.settings.mirror_size == 1 and torch.is_grad_enabled():
            note_parts(run, self._original, _first_pass(run, self._key))
        if not found:
            if _ended(run, self._key, self._pass):
                raise StopIteration
            run.leave("record ends")
        if run.settings.in_turn and any(event["grad"] for _, event in found):
            turn, self._turn = self._turn, (self._turn + 1) % len(found)
            self._given += self._turn == 0
            found = found[turn : turn + 1]
        else:
            self._given += 1
        where = {"key": found[0][1]["key"], "passed": self._pass, "number": found[0][1]["number"]}
        run.note("given", step=run.step, grad=torch.is_grad_enabled(), **where)
        return _together(run, found, self._original)


_first_uses: dict[int, list[str]] = {}
"""By the id of a run: the keys of its loaders in the order of first use."""


def _recorded_key(run: Run, key: str, original: Any) -> str:
    used = _first_uses.setdefault(id(run), [])
    if key not in used:
        used.append(key)
    size = len(original.dataset) if hasattr(original.dataset, "__len__") else None
    return recorded_key(recorded_ranks(run)[0].events, used, key, size)


def recorded_key(events: Sequence[Event], used: Sequence[str], key: str, size: int | None) -> str:
    """The loader of the real run that the mirror's loader `key` replaces.

    used: the mirror's loaders in the order of first use. size: samples of the loader's data set. Lightning makes new
    loaders on several ranks, and uses the script's own on one. Then loaders are matched by the order of first use, if
    their data sets have equal sizes.
    """
    recorded = list(dict.fromkeys(event["key"] for event in events if event["kind"] == "epoch"))
    place = used.index(key)
    if key in recorded or place >= len(recorded) or size is None:
        return key
    made = next((each for each in events if each["kind"] == "loader" and each["key"] == recorded[place]), {})
    return str(recorded[place]) if made.get("size") == size else key


def marked_batch(run: Run, number: int) -> Any:
    """The batches that the script marked with ddpcheck.audit.batch(), put together."""
    found = _at(run, "marked", 0, number)
    if not found:
        run.leave("record ends")
    return _together(run, found, None)


def lengths(run: Run) -> dict[str, int]:
    """The len() that each loader reported in the real run."""
    return _lengths(recorded_ranks(run))


@functools.cache
def _lengths(found: tuple[RecordedRank, ...]) -> dict[str, int]:
    return {
        event["key"]: event["batches"]
        for recorded in found
        for event in recorded.events
        if event["kind"] == "loader" and event["batches"] is not None
    }


def _at(run: Run, key: str, passed: int, number: int) -> list[tuple[RecordedRank, Event]]:
    """The batches of this position, by rank; a rank without a batch is left out."""
    every = recorded_ranks(run)
    return [
        (recorded, index[key, passed, number])
        for recorded, index in zip(every, map(_index, every), strict=True)
        if (key, passed, number) in index and index[key, passed, number]["kept"]
    ]


def _first_pass(run: Run, key: str) -> list[tuple[RecordedRank, Event]]:
    """The batches of the first pass over this loader that were kept, rank by rank."""
    return [
        (recorded, event)
        for recorded in recorded_ranks(run)
        for (loader, passed, _), event in _index(recorded).items()
        if loader == key and passed == 0 and event["kept"]
    ]


@functools.cache
def _index(recorded: RecordedRank) -> dict[tuple[str, int, int], Event]:
    return {
        (event["key"], event["passed"], event["number"]): event for event in recorded.events if event["kind"] == "batch"
    }


def _ended(run: Run, key: str, passed: int) -> bool:
    """Whether the real run's pass over this loader was recorded to its end."""
    for recorded in recorded_ranks(run):
        numbers = {event["loader"] for event in recorded.events if event["kind"] == "batch" and event["key"] == key}
        numbers |= {event["loader"] for event in recorded.events if event["kind"] == "epoch" and event["key"] == key}
        given = [e for e in recorded.events if e["kind"] == "batch" and e["key"] == key and e["passed"] == passed]
        if any(not event["kept"] for event in given):
            return False
        for event in recorded.events:
            if event["kind"] == "epoch_end" and event["loader"] in numbers and event["passed"] == passed:
                return not event["cut"] or bool(given)
    return False


def _together(run: Run, found: list[tuple[RecordedRank, Event]], loader: Any) -> Any:
    batch = _joined(run, found, loader)
    return mapped(batch, nudged) if run.settings.nudged else batch


def _joined(run: Run, found: list[tuple[RecordedRank, Event]], loader: Any) -> Any:
    run.started = True
    batches = [recorded.journal.load(event["kept"]) for recorded, event in found]
    run.samples = tuple(event["size"] for _, event in found)
    if len(batches) == 1:
        return batches[0]
    try:
        return put_together(batches, run.samples, int(run.settings.rolled))
    except Misfit as misfit:
        again = _collated_again(run, found, batches, loader)
        if again is not None:
            return again
        run.note("misfit", what="batch", step=run.step, why=str(misfit), line=run.line())
        run.samples = run.samples[:1]
        return batches[0]


def _collated_again(run: Run, found: list[tuple[RecordedRank, Event]], batches: list[Any], loader: Any) -> Any:
    """All ranks' samples through the script's own collate function, if it reproduces a rank's batch."""
    if loader is None or loader.collate_fn is None or any(event["indices"] is None for _, event in found):
        return None
    try:
        run.loading += 1
        own = [[loader.dataset[index] for index in event["indices"]] for _, event in found]
        if any(
            digest_of_nest(loader.collate_fn(mine)) != digest_of_nest(batch)
            for mine, batch in zip(own, batches, strict=True)
        ):
            return None
        every = [sample for mine in own for sample in mine]
        made = loader.collate_fn(rolled(every, int(run.settings.rolled)))
        run.recollated = True
        run.note("recollated", step=run.step)
        return made
    except Exception:
        return None
    finally:
        run.loading -= 1
