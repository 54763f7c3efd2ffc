"""Scores over the samples of all ranks."""

from __future__ import annotations

from .. import job as ops
from .rank_state import RankState, Values
from .result_validation import checked_number, offered


def score(rank_state: RankState, op: ops.Score) -> Values:
    given = op.given(rank_state.rank)
    before = [array.copy() for array in given]
    got = offered(rank_state.facets.compute_score, "compute_score")(op.name, *given)
    changed = any(now.tobytes() != was.tobytes() for now, was in zip(given, before, strict=True))
    return {"score": checked_number(got, "compute_score()"), "argument_changed": changed}
