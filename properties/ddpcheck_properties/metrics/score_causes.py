"""What a wrong score is: which mistake gives that number, likeliest first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ddpcheck.job import Score
from ddpcheck.oracle.scores import FINISH, TERMS, score_of
from ddpcheck.values import Array

from .score_filled import of_zeros
from .score_formulas import OF_SCORES
from .score_held import Named, SamplesByRank, counted
from .score_mixed import of_mixed


def causes(made: Score, before: Sequence[Score], rank: int, got: float, want: float, bound: float) -> Iterator[str]:
    """Those that give what this rank got, where rounding may take it as far as the right one."""
    held = SamplesByRank(made)
    if made.far:  # smaller ones went well before
        yield _APART if made.name == "rmse" else _CUT_OFF
        return
    if math.isnan(got):
        if made.empty:
            yield "rows of padding are multiplied by 0, and 0 times NaN is NaN: they have to be left out"
        if counted(made.indices) == (0,):
            yield _SAMPLE_0
        if any(not len(outputs) for outputs, _ in held.parts):
            yield "a rank without samples takes part with its NaN: it has no score of its own, or one of 0 / 0"
        elif made.name == "auc":
            yield "a rank whose samples are all of one class takes part with NaN: pairs within a rank are all that it has"
        return
    if math.isnan(want):
        nothing = not counted(made.indices)
        yield (
            "a number out of nothing: a division by max(count, 1), or a sum that begins at 0"
            if nothing
            else "a number out of no pair: one class has no sample"
        )
        return
    close = max(bound, 1e-9 * abs(want))
    found = [cause for cause, value in _all(held, before, rank) if abs(got - value) <= close]
    yield from found
    if found:
        return
    if made.name == "auc" and made.values == "real":
        yield "outputs that differ by little are taken for equal: they are rounded, or a few thresholds stand for all"
    elif abs(got - want) <= 2e-3 * abs(want):
        yield "it is right but for rounding: a sum, or a count, is kept with fewer digits than float32 has"


_ROUND = (*(1 << power for power in range(3, 16)), *(10**power for power in range(1, 5)))
"""At which numbers of samples a loop, or a buffer, may end."""
_SAMPLE_0 = "sample 0 is left out: its index is taken for padding"
_APART = (
    "squares, or products, of outputs and targets are summed up apart, and what is large is taken from what is large: the "
    "difference comes before the square"
)
_CUT_OFF = "what is large of the loss, or of the perplexity, is cut off"


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
            "it is that of this call's samples and those before: what was summed up is kept",
            score_of(held.name, outputs, targets),
        )
    for each in alike:
        yield "it is that of an earlier call, which is told again", SamplesByRank(each).of([counted(each.indices)])


def _of_repetition(made: Score, held: SamplesByRank) -> Named:
    without = [[index for index in rank if index >= 0] for rank in made.indices]
    padded = any(-1 in rank for rank in made.indices)
    if padded:
        yield "rows of padding, whose index is -1, count as samples", held.of(made.indices)
        cut = [rank[: len(rank) - rank.count(-1)] for rank in made.indices]
        yield "as many rows as are padding are cut off the end, wherever padding stands", held.of(cut)
        for keeper in range(held.world if held.world > 1 else 0):
            only = [rank if place != keeper else without[place] for place, rank in enumerate(made.indices)]
            if len(without[keeper]) < len(made.indices[keeper]):
                yield (
                    f"rows of padding, whose index is -1, count as samples on all ranks but rank {keeper}",
                    held.of(only),
                )
        yield "all rows of padding are taken for one sample", held.of([(*counted(made.indices), -1)])
    yield from _of_names(made, held)
    if len(counted(made.indices)) < sum(map(len, without)):
        twice = "a sample that is there twice, as where a sampler pads, counts twice"
        yield twice, held.of(without)
        yield (
            "as many rows as there are too many are cut off the end, but what is there twice stands elsewhere, too",
            held.of(_cut(without, len(counted(made.indices)))),
        )
        yield (
            "a sample that several ranks hold counts on each of them: only those of one rank are compared",
            held.of([counted([rank]) for rank in without]),
        )
        yield "of a sample that is there three times one row is left out, and two count", held.of(_but_second(without))
        once = [index for index in counted(made.indices) if sum(rank.count(index) for rank in without) == 1]
        if once:
            yield "a sample that is there twice does not count at all", held.of([once])


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
                f"samples whose indices {kind} takes for one, or for padding, count once together, or not at all",
                held.of([[every[at] for at in kept]]),
            )


def _of_labels(held: SamplesByRank) -> Named:
    outputs, labels = held.together(range(held.world))
    for kind, largest in (("uint8", 255), ("int8", 127)):
        if labels.dtype.kind == "i" and labels.max(initial=0) > largest:
            kept = labels.astype(kind).astype(np.int64) % held.made.classes
            yield f"labels past {largest} begin again: they travel as {kind}", score_of(held.name, outputs, kept)


def _of_ranks(held: SamplesByRank, rank: int) -> Named:
    name, there = held.name, [place for place, (outputs, _) in enumerate(held.parts) if len(outputs)]
    scores = {place: held.of_ranks([place]) for place in there}
    told = {place: score for place, score in scores.items() if not math.isnan(score)}
    if not told:
        return
    total = math.fsum(told.values())
    yield "it is the mean of the ranks' scores, which is not the score of all samples", total / len(told)
    if len(told) < held.world:
        yield "it is the mean of the ranks' scores, to which a rank without one gives 0", total / held.world
    sizes = {place: len(held.parts[place][0]) for place in told}
    weighted = math.fsum(told[place] * size for place, size in sizes.items()) / sum(sizes.values())
    yield (
        f"it is the mean of the ranks' scores, weighted by their counts: right for a mean, which {name} is not",
        weighted,
    )
    if held.world > 1:
        yield "it is the sum of the ranks' scores", total
        yield "it is this rank's own: nothing is combined", scores.get(rank, math.nan)


def _of_some_ranks(held: SamplesByRank) -> Named:
    """After what is the score's own: with few samples, one rank's may be that of a mistake by chance."""
    there = [place for place, (outputs, _) in enumerate(held.parts) if len(outputs)]
    for place in there if held.world > 1 else ():
        yield f"it is that of rank {place} alone", held.of_ranks([place])
    for place in there if len(there) > 1 else ():
        yield f"the samples of rank {place} are missing", held.of_ranks(other for other in there if other != place)


def _of_some_samples(held: SamplesByRank) -> Named:
    sizes = sorted({len(outputs) for outputs, _ in held.parts})
    outputs, targets = held.together(range(held.world))
    every = counted(held.made.indices)
    if 0 in every:
        yield _SAMPLE_0, held.of([[each for each in every if each]])
    if sizes[-1] > 1:
        for text, part in (("first", slice(1, None)), ("last", slice(None, -1))):
            yield f"the {text} sample of every rank is left out", held.of_parts(part)
    for most in sorted({sizes[0], *_ROUND}):
        if 0 < most < sizes[-1]:
            least = ", as many as the rank with the fewest has" * (most == sizes[0])
            yield f"only {most} samples of a rank count{least}", held.of_parts(slice(most))
    labels = set(targets.tolist()) if targets.dtype.kind == "i" else set()
    for label in sorted(labels, key=lambda each: (each not in (0, 1, 255), each)):
        text = f"samples of label {label} are left out: it is taken for that of padding"
        yield text, score_of(held.name, outputs[targets != label], targets[targets != label])


def _of_offsets(held: SamplesByRank) -> Named:
    """What came of it if the ranks' samples lie one behind the other, and are cut apart at wrong places."""
    sizes = [len(outputs) for outputs, _ in held.parts]
    outputs, targets = held.together(range(held.world))
    for offsets in ([0, *sizes[:-1]], [rank * sizes[0] for rank in range(held.world)]):
        rows = [row for start, size in zip(offsets, sizes, strict=True) for row in range(start, start + size)]
        if max(rows, default=0) < len(outputs) and rows != list(range(len(outputs))):
            text = "the ranks' samples are gathered in one row, and cut apart at places other than the sums of the counts before"
            yield text, score_of(held.name, outputs[rows], targets[rows])


def _terms(held: SamplesByRank) -> list[Array]:
    """Of every rank that has samples, what each of them adds to the score's sum."""
    return [TERMS[held.name](*part) for part in held.parts if len(part[0])]


def _of_a_narrow_count(held: SamplesByRank) -> Named:
    terms = _terms(held)
    count = sum(map(len, terms))
    if 0 < count < np.finfo(np.float16).max and (narrow := float(np.float16(count))) != count:
        total = math.fsum(np.concatenate(terms))
        yield (
            "the number of samples has fewer digits than it needs, as in half precision",
            FINISH[held.name](total / narrow),
        )


def _of_terms(held: SamplesByRank) -> Named:
    terms = _terms(held)
    finish, total = FINISH[held.name], math.fsum(np.concatenate(terms))
    count, empty = sum(map(len, terms)), held.world - len(terms)
    means = [float(each.mean()) for each in terms]
    yield (
        "the ranks' means weigh equally before it is made of them: counts are not used",
        finish(math.fsum(means) / len(means)),
    )
    if empty:
        yield "a rank without samples is counted as one", finish(total / (count + empty))
        yield (
            "the ranks' means weigh equally, and a rank without samples gives 0",
            finish(math.fsum(means) / held.world),
        )
    if held.name != "perplexity":
        yield "it is not divided by the number of all samples", finish(total)
        yield "it is divided by the number of ranks once more", finish(total / count / held.world)
