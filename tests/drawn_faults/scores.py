"""Scores that are wrong only under some circumstance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from effect_reports import judge_effect, report_effect

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Facets
from ddpcheck.seeded_values import Array
from ddpcheck_implementations.data_parallel.scores import compute_score

Call = dict[str, Any]
"""One call: name; ranks, the outputs, targets and indices of each; rank; number, from 1 on; before, the call before."""


def promised(right: Capabilities) -> Capabilities:
    """The promises of these adapters, a subset of the reference's."""
    return right.of_facets("scores")


def _counts(c: Call) -> list[int]:
    return [len(indices) for _, _, indices in c["ranks"]]


def _together(c: Call, part: int) -> Array:
    return np.concatenate([rank[part] for rank in c["ranks"]])


def _samples(c: Call) -> Array:
    indices = _together(c, 2)
    return indices[indices >= 0]


def _classes(c: Call) -> int:
    return int(c["ranks"][0][0].shape[1])


def _labels(c: Call) -> list[set[int]]:
    """The labels of each rank with samples; none for a score without labels."""
    return [{*targets.tolist()} for _, targets, _ in c["ranks"] if len(targets) and targets.ndim == 1]


def _guesses(c: Call) -> set[int]:
    return {*_together(c, 0).argmax(axis=1).tolist()} if len(_together(c, 0)) else set()


def _tied(c: Call) -> bool:
    outputs = np.sort(_together(c, 0), axis=1)
    return bool((outputs[:, -1:] == outputs[:, -2:-1]).any())


CIRCUMSTANCES: dict[str, Callable[[Call], Any]] = {
    **{
        f"it is {name}": lambda c, name=name: c["name"] == name  # type: ignore[misc]
        for name in ("accuracy", "f1_macro", "perplexity", "auc", "rmse")
    },
    "a rank has no samples": lambda c: 0 in _counts(c) and any(_counts(c)),
    "rank 0 has no samples": lambda c: _counts(c)[0] == 0 and any(_counts(c)),
    "ranks have samples of different numbers": lambda c: len({*_counts(c)}) > 1,
    "ranks have samples of one number": lambda c: len({*_counts(c)}) == 1,
    "a rank has one sample": lambda c: 1 in _counts(c),
    "there is one sample": lambda c: sum(_counts(c)) == 1,
    "there are no samples": lambda c: not any(_counts(c)),
    "there are more than 50 samples": lambda c: sum(_counts(c)) > 50,
    "there are more than 2000 samples": lambda c: sum(_counts(c)) > 2000,
    "a sample is there twice": lambda c: len({*_samples(c).tolist()}) < len(_samples(c)),
    "there is padding": lambda c: -1 in _together(c, 2),
    "a rank has padding only": lambda c: any(len(rank[2]) and (rank[2] < 0).all() for rank in c["ranks"]),
    "an index is above 2^24": lambda c: (_samples(c) > 1 << 24).any(),
    "indices are not in ascending order": lambda c: (np.diff(_samples(c)) < 0).any(),
    "there are two outputs": lambda c: _classes(c) == 2,
    "there is one output": lambda c: _classes(c) == 1,
    "there are more than four outputs": lambda c: _classes(c) > 4,
    "there are more than 255 outputs": lambda c: _classes(c) > 255,
    "a class is no label": lambda c: _labels(c) and len(set().union(*_labels(c))) < _classes(c),
    "a rank has one label only": lambda c: any(len(labels) == 1 for labels in _labels(c)),
    "a label is never the largest output": lambda c: _labels(c) and set().union(*_labels(c)) - _guesses(c),
    "two largest outputs are equal": _tied,
    "an output is above 10": lambda c: (_together(c, 0) > 10).any(),
    "an output is no integer": lambda c: (_together(c, 0) % 1 != 0).any(),
    "an output is NaN": lambda c: np.isnan(_together(c, 0)).any(),
    "it is the first call": lambda c: c["number"] == 1,
    "it is the second call": lambda c: c["number"] == 2,
    "it is the tenth call or a later one": lambda c: c["number"] >= 10,
    "the call before was of another score": lambda c: c["before"] and c["before"]["name"] != c["name"],
    "the call before was of more samples": lambda c: c["before"] and sum(_counts(c["before"])) > sum(_counts(c)),
    "the call before was of as many samples": lambda c: c["before"] and _counts(c["before"]) == _counts(c),
}


class _Alone:
    """The collectives of one process."""

    def all_gather(self, array: Array) -> Array:
        return np.array(array)[None]

    def all_reduce(self, array: Array) -> Array:
        return np.array(array)


def _of(c: Call, ranks: Iterable[Sequence[Array]], *, anew: bool = False) -> float:
    """The score of these ranks' samples. anew: each counts, with any index."""
    outputs, targets, indices = (np.concatenate(parts) for parts in zip(*ranks, strict=True))
    alone: Any = _Alone()
    return compute_score(alone, 0, c["name"], outputs, targets, np.arange(len(indices)) if anew else indices)


def _each(c: Call, change: Callable[[Array, Array, Array], Sequence[Array]], *, anew: bool = False) -> float:
    """The score of samples that are changed on every rank."""
    return _of(c, [change(*rank) for rank in c["ranks"]], anew=anew)


def _scores(c: Call) -> list[float]:
    return [_of(c, [rank]) for rank in c["ranks"]]


def _mean(c: Call, *, weighted: bool) -> float:
    pairs = [(score, count) for score, count in zip(_scores(c), _counts(c), strict=True) if count]
    total = sum(count if weighted else 1 for _, count in pairs)
    return sum(score * (count if weighted else 1) for score, count in pairs) / total if pairs else math.nan


def _filled(c: Call) -> float:
    most = max(_counts(c))
    padded = [
        [np.concatenate([part, np.zeros((most - len(part), *part.shape[1:]), part.dtype)]) for part in rank]
        for rank in c["ranks"]
    ]
    return _of(c, padded, anew=True)


def _alike(c: Call) -> bool:
    """Whether the previous call had samples of the same kind."""
    return bool(c["before"] and c["before"]["name"] == c["name"] and _classes(c["before"]) == _classes(c))


def _relabelled(targets: Array, outputs: Array) -> Array:
    return (targets + 1) % outputs.shape[1] if targets.ndim == 1 else targets + 1


EFFECTS: dict[str, Callable[[Call, float], Any]] = {
    "it is the mean of the ranks' scores": lambda c, right: _mean(c, weighted=False),
    "it is the mean of the ranks' scores by their counts": lambda c, right: _mean(c, weighted=True),
    "it is rank 0's": lambda c, right: _scores(c)[0],
    "it is this rank's own": lambda c, right: _scores(c)[c["rank"]],
    "it is the largest of the ranks' scores": lambda c, right: max(_scores(c)),
    "the last rank is left out": lambda c, right: _of(c, c["ranks"][:-1] or c["ranks"]),
    "the samples of rank 0 count twice": lambda c, right: _of(c, [*c["ranks"], c["ranks"][0]], anew=True),
    "the last sample is left out": lambda c, right: _of(c, [[_together(c, part)[:-1] for part in range(3)]]),
    "every rank's last sample is left out": lambda c, right: _each(c, lambda o, t, i: (o[:-1], t[:-1], i[:-1])),
    "ranks have as many samples as the smallest": lambda c, right: _each(
        c, lambda o, t, i: (o[: min(_counts(c))], t[: min(_counts(c))], i[: min(_counts(c))])
    ),
    "shorter ranks are filled up with zeros": lambda c, right: _filled(c),
    "samples count as often as they are there": lambda c, right: _each(
        c, lambda o, t, i: (o[i >= 0], t[i >= 0], i[i >= 0]), anew=True
    ),
    "padding counts": lambda c, right: _each(c, lambda o, t, i: (o, t, abs(i))),
    "sample 0 is taken for padding": lambda c, right: _each(c, lambda o, t, i: (o, t, np.where(i == 0, -1, i))),
    "indices are kept in 16 bits": lambda c, right: _each(c, lambda o, t, i: (o, t, i.astype(np.int16))),
    "labels are one too high": lambda c, right: _each(c, lambda o, t, i: (o, _relabelled(t, o), i)),
    "targets are those of the sample before": lambda c, right: _each(c, lambda o, t, i: (o, np.roll(t, 1, axis=0), i)),
    "outputs are rounded to float16": lambda c, right: _each(c, lambda o, t, i: (o.astype(np.float16), t, i)),
    "outputs are rounded to integers": lambda c, right: _each(c, lambda o, t, i: (np.rint(o), t, i)),
    "outputs are turned round": lambda c, right: _each(c, lambda o, t, i: (o[:, ::-1], t, i)),
    "a sample with a NaN is left out": lambda c, right: _each(
        c, lambda o, t, i: (o, t, np.where(np.isnan(o).any(axis=1), -1, i))
    ),
    "what is no number is 0": lambda c, right: 0.0 if math.isnan(right) else right,
    "it is no number": lambda c, right: math.nan,
    "it is rounded to float16": lambda c, right: float(np.float16(right)),
    "it is rounded to two decimals": lambda c, right: round(right, 2),
    "it is 1.0001 x too large": lambda c, right: right * 1.0001,
    "it is 1 less it": lambda c, right: 1 - right,
    "it has another last bit on rank 1": lambda c, right: math.nextafter(right, 9) if c["rank"] == 1 else right,
    "it is that of the call before": lambda c, right: c["before"]["score"] if _alike(c) else right,
    "the samples of the call before count, too": lambda c, right: (
        _of(c, [*c["ranks"], *c["before"]["ranks"]], anew=True) if _alike(c) else right
    ),
    "the outputs are set to zero": lambda c, right: (c["passed"].fill(0), report_effect(), right)[-1],
    "rank 0 raises an error": lambda c, right: right if c["rank"] else c["no such thing"],
}


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    comm, number, before = right.collectives, 0, {}

    def score(name: str, outputs: Array, targets: Array, indices: Array) -> Any:
        nonlocal number, before
        number += 1
        held = zip(*map(partial(_gathered, comm), (outputs, targets, indices)), strict=True)
        call: Call = {"name": name, "ranks": [*held], "rank": right.rank, "number": number, "before": before}
        assert right.compute_score is not None
        due = right.compute_score(name, outputs, targets, indices)
        before = {**call, "before": {}, "score": due}
        call["passed"] = outputs
        if not CIRCUMSTANCES[circumstance](call):
            return due
        with np.errstate(all="ignore"):
            return judge_effect(lambda: EFFECTS[effect](call, due), due)

    return {"compute_score": score}


def _gathered(comm: Any, array: Array) -> list[Array]:
    counts = comm.all_gather(np.array(len(array))).tolist()
    padded = np.zeros((max(counts), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return [part[:count] for part, count in zip(comm.all_gather(padded), counts, strict=True)]
