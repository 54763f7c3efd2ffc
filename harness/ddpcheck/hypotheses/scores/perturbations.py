"""Scores of outputs and targets that are shifted, rounded or duplicated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...causes import scores as causes
from ...oracle.scores import score_of
from ...seeded_values import Array
from .samples import Named, SamplesByRank

_ROUNDED: dict[str, Callable[[Array], Array]] = {"float16": lambda x: x.astype(np.float16), "integers": np.rint}


def of_mixed(held: SamplesByRank) -> Named:
    """The score of such samples."""
    outputs, targets = held.together(range(held.world))
    for decimals in (2, 3, 4):
        yield (
            causes.SCORE_ROUNDED(decimals=decimals),
            round(score_of(held.name, outputs, targets), decimals),
        )
    if held.name in ("accuracy", "f1_macro"):
        yield causes.SCORE_COMPLEMENT(), 1 - score_of(held.name, outputs, targets)
    if targets.dtype.kind == "i":
        for by in (1, -1):
            labels = (targets + by) % held.made.classes
            yield causes.LABELS_SHIFTED(by=by), score_of(held.name, outputs, labels)
    for by, place in ((1, "before"), (-1, "after")):
        turned = np.concatenate([np.roll(each, by, axis=0) for _, each in held.parts])
        yield causes.TARGETS_SHIFTED(place=place), score_of(held.name, outputs, turned)
    for dtype, rounded in _ROUNDED.items():
        yield (
            causes.OUTPUTS_ROUNDED(dtype=dtype),
            score_of(held.name, rounded(outputs).astype(outputs.dtype), targets),
        )
    for rank, (_, its) in enumerate(held.parts):
        if held.world > 1 and len(its):
            yield causes.RANK_COUNTS_TWICE(rank=rank), held.of_ranks([*range(held.world), rank])
