"""Scores of outputs and targets that are shifted, rounded, or there once more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddpcheck.oracle.scores import score_of
from ddpcheck.values import Array

from .score_held import Named, SamplesByRank

_ROUNDED: dict[str, Callable[[Array], Array]] = {"float16": lambda x: x.astype(np.float16), "integers": np.rint}


def of_mixed(held: SamplesByRank) -> Named:
    """What a score would be of such samples."""
    outputs, targets = held.together(range(held.world))
    for decimals in (2, 3, 4):
        yield (
            f"it is rounded to {decimals} decimals, as for display",
            round(score_of(held.name, outputs, targets), decimals),
        )
    if held.name in ("accuracy", "f1_macro"):
        yield "it is 1 minus the score: the share of what is wrong", 1 - score_of(held.name, outputs, targets)
    if targets.dtype.kind == "i":
        for by, words in ((1, "high"), (-1, "low")):
            labels = (targets + by) % held.made.classes
            yield f"labels are one too {words}: counted from 1, perhaps", score_of(held.name, outputs, labels)
    for by, words in ((1, "before"), (-1, "after")):
        turned = np.concatenate([np.roll(each, by, axis=0) for _, each in held.parts])
        yield f"each output is compared with the target of the sample {words}", score_of(held.name, outputs, turned)
    for words, rounded in _ROUNDED.items():
        yield (
            f"outputs are rounded to {words}: fewer digits than they have",
            score_of(held.name, rounded(outputs).astype(outputs.dtype), targets),
        )
    for rank, (_, its) in enumerate(held.parts):
        if held.world > 1 and len(its):
            yield f"the samples of rank {rank} count twice", held.of_ranks([*range(held.world), rank])
