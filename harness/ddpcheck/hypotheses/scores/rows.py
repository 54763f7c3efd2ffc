"""Scores of wrong rows: padding, repeated samples, samples left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...causes import scores as causes
from ...job import Score
from ...oracle.scores import counted, score_of
from .samples import Named, SamplesByRank

_ROUND = (*(1 << power for power in range(3, 16)), *(10**power for power in range(1, 5)))
"""Numbers of samples at which a loop, or a buffer, may end."""


def of_repetition(held: SamplesByRank) -> Named:
    """Padding counts, or samples of several ranks count repeatedly."""
    made = held.made
    without = [[index for index in rank if index >= 0] for rank in made.indices]
    padded = any(-1 in rank for rank in made.indices)
    if padded:
        yield causes.PADDING_COUNTED(), held.of(made.indices)
        cut = [rank[: len(rank) - rank.count(-1)] for rank in made.indices]
        yield causes.PADDING_CUT_AT_END(), held.of(cut)
        for keeper in range(held.world if held.world > 1 else 0):
            only = [rank if place != keeper else without[place] for place, rank in enumerate(made.indices)]
            if len(without[keeper]) < len(made.indices[keeper]):
                yield (
                    causes.PADDING_COUNTED_BUT_ON_RANK(rank=keeper),
                    held.of(only),
                )
        yield causes.PADDING_COUNTED_ONCE(), held.of([(*counted(made.indices), -1)])
    yield from _of_names(made, held)
    if len(counted(made.indices)) < sum(map(len, without)):
        yield causes.DUPLICATES_COUNTED(), held.of(without)
        yield (
            causes.DUPLICATES_CUT_AT_END(),
            held.of(_cut(without, len(counted(made.indices)))),
        )
        yield (
            causes.DUPLICATES_BETWEEN_RANKS_COUNTED(),
            held.of([counted([rank]) for rank in without]),
        )
        yield causes.THIRD_COPY_COUNTED(), held.of(_but_second(without))
        once = [index for index in counted(made.indices) if sum(rank.count(index) for rank in without) == 1]
        if once:
            yield causes.DUPLICATES_LEFT_OUT(), held.of([once])


def _but_second(ranks: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The rows without the second row of each sample."""
    seen: Counter[int] = Counter()
    kept: list[Sequence[int]] = []
    for rank in ranks:
        mine = []
        for index in rank:
            seen[index] += 1
            mine += [index] * (seen[index] != 2)
        kept.append(mine)
    return kept


def _cut(ranks: Sequence[Sequence[int]], size: int) -> list[Sequence[int]]:
    """The first `size` rows, rank after rank."""
    begins = [sum(map(len, ranks[:rank])) for rank in range(len(ranks))]
    return [rank[: max(0, size - begin)] for rank, begin in zip(ranks, begins, strict=True)]


def _of_names(made: Score, held: SamplesByRank) -> Named:
    """Indices in a dtype that does not hold them."""
    every = counted(made.indices)
    names = made.called(np.array(every, np.int64))
    for kind in ("int32", "float32", "float64"):
        told = names.astype(kind)
        kept = [at for at in np.unique(told, return_index=True)[1] if told[at] >= 0]
        if len(kept) < len(every):
            yield (
                causes.INDICES_CONFUSED(dtype=kind),
                held.of([[every[at] for at in kept]]),
            )


def of_labels(held: SamplesByRank) -> Named:
    """Labels in a dtype that does not hold them."""
    outputs, labels = held.together(range(held.world))
    for kind, largest in (("uint8", 255), ("int8", 127)):
        if labels.dtype.kind == "i" and labels.max(initial=0) > largest:
            kept = labels.astype(kind).astype(np.int64) % held.made.classes
            yield causes.LABELS_WRAP(largest=largest, dtype=kind), score_of(held.name, outputs, kept)


def of_some_samples(held: SamplesByRank) -> Named:
    """Samples are left out: the first, the last, those past a round number, or those of a label."""
    sizes = sorted({len(outputs) for outputs, _ in held.parts})
    outputs, targets = held.together(range(held.world))
    every = counted(held.made.indices)
    if 0 in every:
        yield causes.SAMPLE_0_LEFT_OUT(), held.of([[each for each in every if each]])
    if sizes[-1] > 1:
        for place, part in (("first", slice(1, None)), ("last", slice(None, -1))):
            yield causes.END_SAMPLE_LEFT_OUT(place=place), held.of_parts(part)
    for most in sorted({sizes[0], *_ROUND}):
        if 0 < most < sizes[-1]:
            kind = causes.FEWEST_SAMPLES_COUNT if most == sizes[0] else causes.SAMPLES_LIMITED
            yield kind(number=most), held.of_parts(slice(most))
    labels = set(targets.tolist()) if targets.dtype.kind == "i" else set()
    for label in sorted(labels, key=lambda each: (each not in (0, 1, 255), each)):
        yield (
            causes.LABEL_LEFT_OUT(label=label),
            score_of(held.name, outputs[targets != label], targets[targets != label]),
        )


def of_offsets(held: SamplesByRank) -> Named:
    """The score if the ranks' samples are concatenated and cut apart at wrong places."""
    sizes = [len(outputs) for outputs, _ in held.parts]
    outputs, targets = held.together(range(held.world))
    for offsets in ([0, *sizes[:-1]], [rank * sizes[0] for rank in range(held.world)]):
        rows = [row for start, size in zip(offsets, sizes, strict=True) for row in range(start, start + size)]
        if max(rows, default=0) < len(outputs) and rows != list(range(len(outputs))):
            yield causes.GATHERED_ROWS_CUT_WRONG(), score_of(held.name, outputs[rows], targets[rows])
