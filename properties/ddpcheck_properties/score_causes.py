"""What a wrong score is: which mistake gives that number, likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ddpcheck.job import Score
from ddpcheck.oracle.scores import FINISH, TERMS, confusion, f1_of_classes, margins, score_of
from ddpcheck.values import Array

Named = Iterator[tuple[str, float]]
"""Causes, each with the score that it gives."""


def counted(indices: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The samples of these ranks, each once, without padding."""
    return tuple(dict.fromkeys(index for rank in indices for index in rank if index >= 0))


def causes(made: Score, before: Sequence[Score], rank: int, got: float, want: float, bound: float) -> Iterator[str]:
    """Those that give what this rank got, where rounding may take it as far as the right one."""
    held = _Held(made)
    if made.far:  # smaller ones went well before
        yield _CUT_OFF
        return
    if math.isnan(got):
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
    for cause, value in _all(held, before, rank):
        if abs(got - value) <= close:
            yield cause
    if made.name == "auc" and made.values == "real":
        yield "outputs that differ by little are taken for equal: they are rounded, or a few thresholds stand for all"
    elif abs(got - want) <= 2e-3 * abs(want):
        yield "it is right but for rounding: a sum, or a count, is kept with fewer digits than float32 has"


_CUT_OFF = "what is large of the loss, or of the perplexity, is cut off"


class _Held:
    """Each rank's outputs and targets, samples that several have with the first of them, and padding left out."""

    def __init__(self, made: Score) -> None:
        self.made, self.name, self.world = made, made.name, len(made.indices)
        seen: set[int] = set()
        firsts = []
        for indices in made.indices:
            mine = [index for index in dict.fromkeys(indices) if index >= 0 and index not in seen]
            seen.update(mine)
            firsts.append(tuple(mine))
        self.parts = [made.rows(indices)[:2] for indices in firsts]

    def of(self, indices: Iterable[Sequence[int]]) -> float:
        outputs, targets, _ = self.made.rows(tuple(index for rank in indices for index in rank))
        return score_of(self.name, outputs, targets)

    def of_ranks(self, ranks: Iterable[int]) -> float:
        outputs, targets = self.together(ranks)
        return score_of(self.name, outputs, targets)

    def together(self, ranks: Iterable[int]) -> tuple[Array, Array]:
        chosen = [self.parts[rank] for rank in ranks]
        outputs, targets = (np.concatenate(arrays) for arrays in zip(*chosen, strict=True))
        return outputs, targets


def _all(held: _Held, before: Sequence[Score], rank: int) -> Named:
    yield from _of_earlier(held, before)
    yield from _of_repetition(held.made, held)
    yield from _of_labels(held)
    yield from _of_ranks(held, rank)
    yield from _OF_SCORES[held.name](held)
    if held.name in TERMS:
        yield from _of_terms(held)


def _of_earlier(held: _Held, before: Sequence[Score]) -> Named:
    alike = [each for each in before if each.name == held.name and each.classes == held.made.classes]
    for number in range(len(alike)):
        rows = [each.rows(counted(each.indices)) for each in (*alike[number:], held.made)]
        outputs, targets = (np.concatenate([row[part] for row in rows]) for part in (0, 1))
        yield (
            "it is that of this call's samples and those before: what was summed up is kept",
            score_of(held.name, outputs, targets),
        )
    for each in alike:
        yield "it is that of an earlier call, which is told again", _Held(each).of([counted(each.indices)])


def _of_repetition(made: Score, held: _Held) -> Named:
    without = [[index for index in rank if index >= 0] for rank in made.indices]
    padded = any(-1 in rank for rank in made.indices)
    if padded:
        yield "rows of padding, whose index is -1, count as samples", held.of(made.indices)
        cut = [rank[: len(rank) - rank.count(-1)] for rank in made.indices]
        yield "as many rows as are padding are cut off the end, wherever padding stands", held.of(cut)
        yield "all rows of padding are taken for one sample", held.of([(*counted(made.indices), -1)])
    if made.first:
        every = counted(made.indices)
        _, kept = np.unique(np.array(every, np.float32) + np.float32(made.first), return_index=True)
        yield "samples whose indices float32 takes for one count once together", held.of([[every[at] for at in kept]])
    if len(counted(made.indices)) < sum(map(len, without)):
        twice = "a sample that is there twice, as where a sampler pads, counts twice"
        yield twice, held.of(without)
        yield (
            "a sample that several ranks hold counts on each of them: only those of one rank are compared",
            held.of([counted([rank]) for rank in without]),
        )
        once = [index for index in counted(made.indices) if sum(rank.count(index) for rank in without) == 1]
        if once:
            yield "a sample that is there twice does not count at all", held.of([once])


def _of_labels(held: _Held) -> Named:
    outputs, labels = held.together(range(held.world))
    for kind, largest in (("uint8", 255), ("int8", 127)):
        if labels.dtype.kind == "i" and labels.max(initial=0) > largest:
            kept = labels.astype(kind).astype(np.int64) % held.made.classes
            yield f"labels past {largest} begin again: they travel as {kind}", score_of(held.name, outputs, kept)


def _of_ranks(held: _Held, rank: int) -> Named:
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
        for place, score in told.items():
            yield f"it is that of rank {place} alone", score
        for place in there if len(there) > 1 else ():
            yield f"the samples of rank {place} are missing", held.of_ranks(other for other in there if other != place)


def _of_terms(held: _Held) -> Named:
    terms = [TERMS[held.name](*part) for part in held.parts if len(part[0])]
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


def _of_accuracy(held: _Held) -> Named:
    outputs, labels = held.together(range(held.world))
    both, _, labelled = confusion(outputs, labels)
    yield (
        "every class weighs the same: it is the mean of the classes' accuracies",
        float(np.mean(both[labelled > 0] / labelled[labelled > 0])),
    )


def _of_f1(held: _Held) -> Named:
    outputs, labels = held.together(range(held.world))
    counts = confusion(outputs, labels)
    both, guessed, labelled = counts
    each = f1_of_classes(counts)
    occurs = ~np.isnan(each)
    yield (
        "all samples weigh the same, not all classes: it is the micro average, the accuracy",
        float(both.sum() / labelled.sum()),
    )
    yield "a class that does not occur anywhere counts with 0", float(each[occurs].sum() / len(each))
    yield (
        "a class that does not occur anywhere counts with 1",
        float((each[occurs].sum() + (~occurs).sum()) / len(each)),
    )
    yield (
        "a class that is no sample's label is left out, though some are taken for it",
        float(each[labelled > 0].mean()),
    )
    yield "classes weigh by their numbers of samples", float((each * labelled)[occurs].sum() / labelled.sum())
    if (guessed > 0).any():
        yield "a class that no sample is taken for is left out", float(each[guessed > 0].mean())
    ranks = np.array([f1_of_classes(confusion(*part)) for part in held.parts if len(part[0])])
    everywhere = ~np.isnan(ranks).any(axis=0)
    if everywhere.any():
        yield "classes that some rank does not have are left out", float(each[everywhere].mean())
    known = ~np.isnan(ranks)
    means = np.where(known, ranks, 0).sum(axis=0)[occurs] / known.sum(axis=0)[occurs]
    yield "the F1 of a class is the mean of those on the ranks: counts of hits are what adds up", float(means.mean())
    yield (
        "the F1 of a class is the mean of those on the ranks, 0 where a rank does not have it",
        float(np.where(known, ranks, 0).mean(axis=0)[occurs].mean()),
    )


def _of_auc(held: _Held) -> Named:
    low, high = margins(*held.together(range(held.world)))
    pairs = high[:, None] - low
    yield "equal outputs count nothing, but should count half", float((pairs > 0).mean())
    yield "equal outputs count as in order, but should count half", float((pairs >= 0).mean())
    yield "the classes are exchanged", float(((np.sign(-pairs) + 1) / 2).mean())
    within = [margins(*part) for part in held.parts]
    signs = [np.sign(up[:, None] - down).reshape(-1) for down, up in within if len(up) and len(down)]
    if signs:
        yield (
            "samples of different ranks are not compared: it is that of pairs within the ranks",
            float((np.concatenate(signs) + 1).mean() / 2),
        )


def _of_rmse(held: _Held) -> Named:
    outputs, targets = held.together(range(held.world))
    differences = outputs.astype(np.float64) - targets
    yield "the root is not taken: it is the mean square", float(np.square(differences).mean())
    yield "it is the mean of absolute differences", float(np.abs(differences).mean())
    yield (
        "it is divided by the number of samples, where each has several outputs",
        math.sqrt(float(np.square(differences).sum() / len(outputs))),
    )


def _of_perplexity(held: _Held) -> Named:
    terms = TERMS["perplexity"](*held.together(range(held.world)))
    mean = float(terms.mean())
    yield "exp is not taken: it is the mean cross entropy", mean
    yield "exp is taken of each sample's cross entropy, and then the mean", float(np.exp(terms).mean())
    yield "2 is raised to natural logarithms: bits and nats are mixed", 2.0**mean


_OF_SCORES = {
    "accuracy": _of_accuracy,
    "f1_macro": _of_f1,
    "auc": _of_auc,
    "rmse": _of_rmse,
    "perplexity": _of_perplexity,
}
