"""Hypotheses about a wrong score, likeliest first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ...causes import Cause
from ...causes import scores as causes
from ...causes.metrics import NUMBER_WITHOUT_SAMPLES
from ...job import Score
from ...oracle.scores import FINISH, TERMS, counted, score_of
from ...seeded_values import Array
from .formulas import OF_SCORES
from .padding import of_zeros
from .perturbations import of_mixed
from .samples import Named, SamplesByRank


def score_causes(
    made: Score, before: Sequence[Score], rank: int, got: float, want: float, bound: float
) -> Iterator[Cause]:
    """Those that give this rank's result, within the rounding that the right one may have."""
    held = SamplesByRank(made)
    if made.far:  # smaller ones went well before
        yield causes.SQUARES_SUMMED_APART() if made.name == "rmse" else causes.LOSS_CUT_OFF()
        return
    if math.isnan(got):
        if made.empty:
            yield causes.PADDING_TIMES_NAN()
        if counted(made.indices) == (0,):
            yield causes.SAMPLE_0_LEFT_OUT()
        if any(not len(outputs) for outputs, _ in held.parts):
            yield causes.NAN_OF_EMPTY_RANK()
        elif made.name == "auc":
            yield causes.NAN_OF_ONE_CLASS()
        return
    if math.isnan(want):
        nothing = not counted(made.indices)
        yield NUMBER_WITHOUT_SAMPLES() if nothing else causes.NUMBER_WITHOUT_PAIRS()
        return
    close = max(bound, 1e-9 * abs(want))
    found = [cause for cause, value in _all(held, before, rank) if abs(got - value) <= close]
    yield from found
    if found:
        return
    if made.name == "auc" and made.values == "real":
        yield causes.OUTPUTS_TAKEN_FOR_EQUAL()
    elif abs(got - want) <= 2e-3 * abs(want):
        yield causes.SCORE_IMPRECISE()


_ROUND = (*(1 << power for power in range(3, 16)), *(10**power for power in range(1, 5)))
"""At which numbers of samples a loop, or a buffer, may end."""


def _all(held: SamplesByRank, before: Sequence[Score], rank: int) -> Named:
    if held.name in TERMS:
        yield from _of_a_narrow_count(held)  # with few samples less, a score may be the same by chance
    yield from _of_earlier(held, before)
    yield from _of_repetition(held.made, held)
    yield from _of_labels(held)
    yield from _of_ranks(held, rank)
    yield from OF_SCORES[held.name](held)
    if held.name in TERMS:
        yield from _of_terms(held)
    yield from _of_some_ranks(held)
    yield from _of_some_samples(held)
    yield from _of_offsets(held)
    yield from of_zeros(held)
    yield from of_mixed(held)


def _of_earlier(held: SamplesByRank, before: Sequence[Score]) -> Named:
    alike = [each for each in before if each.name == held.name and each.classes == held.made.classes]
    for number in range(len(alike)):
        rows = [each.rows(counted(each.indices)) for each in (*alike[number:], held.made)]
        outputs, targets = (np.concatenate([row[part] for row in rows]) for part in (0, 1))
        yield (
            causes.SCORE_ACCUMULATES_CALLS(),
            score_of(held.name, outputs, targets),
        )
    for each in alike:
        yield causes.SCORE_OF_EARLIER_CALL(), SamplesByRank(each).of([counted(each.indices)])


def _of_repetition(made: Score, held: SamplesByRank) -> Named:
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
    """Without the second row of each sample."""
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
    """The first so many, rank after rank."""
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


def _of_labels(held: SamplesByRank) -> Named:
    outputs, labels = held.together(range(held.world))
    for kind, largest in (("uint8", 255), ("int8", 127)):
        if labels.dtype.kind == "i" and labels.max(initial=0) > largest:
            kept = labels.astype(kind).astype(np.int64) % held.made.classes
            yield causes.LABELS_WRAP(largest=largest, dtype=kind), score_of(held.name, outputs, kept)


def _of_ranks(held: SamplesByRank, rank: int) -> Named:
    name, there = held.name, [place for place, (outputs, _) in enumerate(held.parts) if len(outputs)]
    scores = {place: held.of_ranks([place]) for place in there}
    told = {place: score for place, score in scores.items() if not math.isnan(score)}
    if not told:
        return
    total = math.fsum(told.values())
    yield causes.MEAN_OF_RANK_SCORES(), total / len(told)
    if len(told) < held.world:
        yield causes.MEAN_OF_RANK_SCORES_WITH_ZEROS(), total / held.world
    sizes = {place: len(held.parts[place][0]) for place in told}
    weighted = math.fsum(told[place] * size for place, size in sizes.items()) / sum(sizes.values())
    yield (
        causes.WEIGHTED_MEAN_OF_RANK_SCORES(score=name),
        weighted,
    )
    if held.world > 1:
        yield causes.SUM_OF_RANK_SCORES(), total
        yield causes.SCORE_NOT_COMBINED(), scores.get(rank, math.nan)


def _of_some_ranks(held: SamplesByRank) -> Named:
    """After causes of the score itself: with few samples, one rank's score may equal a mistake by chance."""
    there = [place for place, (outputs, _) in enumerate(held.parts) if len(outputs)]
    for place in there if held.world > 1 else ():
        yield causes.SCORE_OF_ONE_RANK(rank=place), held.of_ranks([place])
    for place in there if len(there) > 1 else ():
        yield causes.RANK_MISSING_FROM_SCORE(rank=place), held.of_ranks(other for other in there if other != place)


def _of_some_samples(held: SamplesByRank) -> Named:
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


def _of_offsets(held: SamplesByRank) -> Named:
    """The score if the ranks' samples are concatenated and cut apart at wrong places."""
    sizes = [len(outputs) for outputs, _ in held.parts]
    outputs, targets = held.together(range(held.world))
    for offsets in ([0, *sizes[:-1]], [rank * sizes[0] for rank in range(held.world)]):
        rows = [row for start, size in zip(offsets, sizes, strict=True) for row in range(start, start + size)]
        if max(rows, default=0) < len(outputs) and rows != list(range(len(outputs))):
            yield causes.GATHERED_ROWS_CUT_WRONG(), score_of(held.name, outputs[rows], targets[rows])


def _terms(held: SamplesByRank) -> list[Array]:
    """The contribution of each rank that has samples to the score's sum."""
    return [TERMS[held.name](*part) for part in held.parts if len(part[0])]


def _of_a_narrow_count(held: SamplesByRank) -> Named:
    terms = _terms(held)
    count = sum(map(len, terms))
    if 0 < count < np.finfo(np.float16).max and (narrow := float(np.float16(count))) != count:
        total = math.fsum(np.concatenate(terms))
        yield (
            causes.COUNT_IN_HALF_PRECISION(),
            FINISH[held.name](total / narrow),
        )


def _of_terms(held: SamplesByRank) -> Named:
    terms = _terms(held)
    finish, total = FINISH[held.name], math.fsum(np.concatenate(terms))
    count, empty = sum(map(len, terms)), held.world - len(terms)
    means = [float(each.mean()) for each in terms]
    yield (
        causes.SCORE_MEANS_UNWEIGHTED(),
        finish(math.fsum(means) / len(means)),
    )
    if empty:
        yield causes.EMPTY_RANK_COUNTED_IN_SCORE(), finish(total / (count + empty))
        yield (
            causes.SCORE_MEANS_WITH_ZEROS(),
            finish(math.fsum(means) / held.world),
        )
    if held.name != "perplexity":
        yield causes.SCORE_NOT_DIVIDED(), finish(total)
        yield causes.SCORE_DIVIDED_TWICE(), finish(total / count / held.world)
