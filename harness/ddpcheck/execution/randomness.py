"""Random numbers: runs an implementation's own streams, and disturbs the generators that a whole process shares."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from .. import job as ops
from ..seeded_values import Array
from .process_settings import draw_from_all
from .rank_state import RankState, Values
from .result_validation import ContractViolation, offered


def draw(rank_state: RankState, op: ops.Draw) -> Values:
    make = offered(rank_state.facets.make_streams, "make_streams")
    streams = make(op.seed)
    others = [make(op.seed + 1), make(op.seed)] if op.beside else []
    counts = (1,) * op.count if op.one_by_one else (op.count // 2, -(-op.count // 2))
    found: Values = {"local": [], "common": []}
    for epoch in op.epochs:
        if epoch is not None:
            streams.set_epoch(epoch)
        if op.common_first:
            _numbers(streams.common(op.common_first), op.common_first, "common()")
        if op.extra:
            extra = op.extra[rank_state.rank]
            _numbers(streams.local(extra), extra, "local()")
        common: list[Array] = []
        local: list[Array] = []
        for count in counts:
            for kind, numbers, given in (("common", common, streams.common), ("local", local, streams.local)):
                got = given(count)
                numbers.append(_numbers(got, count, f"{kind}()"))
                rank_state.check_later(found, kind, got.copy(), got)
            for other in others:
                other.set_epoch((epoch or 0) + 7)
                other.local(3)
                other.common(5)
        found["common"].append(np.concatenate(common))
        found["local"].append(np.concatenate(local))
    return found


def _numbers(got: Any, count: int, what: str) -> Array:
    if not isinstance(got, np.ndarray) or got.dtype.kind != "f" or got.shape != (count,):
        form = f"{got.dtype}{list(got.shape)}" if isinstance(got, np.ndarray) else type(got).__name__
        raise ContractViolation(f"{what} must return {count} floats in an array of one dimension, got {form}")
    if not np.all((got >= 0) & (got < 1)):
        raise ContractViolation(f"{what} must return numbers in [0, 1), got {got[~((got >= 0) & (got < 1))][0]!r}")
    return got.astype(np.float64)


def disturb(rank_state: RankState, op: ops.Disturb) -> Values:
    disturb_generators(op.rank, rank_state.rank, rank_state.job.world_size)
    return {}


def disturb_generators(victim: int, rank: int, world_size: int) -> None:
    """Draw from the process's generators on rank `victim`, and seed those of the next rank; other ranks do nothing."""
    torch = sys.modules.get("torch")
    if rank == victim:
        draw_from_all(1)
    if rank == (victim + 1) % world_size:
        random.seed(rank)
        np.random.seed(rank)
        if torch is not None:
            torch.manual_seed(rank)
