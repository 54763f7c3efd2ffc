"""Hypotheses about an optimizer's state: a new replica has loaded a wrong shard."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause
from ...causes import updates as causes
from ...oracle.bounded_values import Value
from ...oracle.optimizer import Optimizer

_SEARCHED = 64
"""Elements of a parameter for which every start of a shard is tried; for more, only starts of equal shards."""


def shards_misplaced(name: str, optimizer: Optimizer) -> Iterator[tuple[Cause, Optimizer]]:
    """Each rank holds the momentum of its own elements, of this parameter or of all parameters in a row."""
    held = optimizer.state.get(name)
    if optimizer.spec.momentum and held is not None:
        flat = held.exact.reshape(len(held.exact), -1)
        ranks, size = flat.shape
        for cut in range(1, size) if size <= _SEARCHED else [-(-size // ranks)] * (ranks > 1):
            moved = optimizer.copy()
            whole = np.concatenate([flat[:, :cut], flat[:, :-cut]], axis=1)
            moved.state[name] = Value(whole.reshape(held.exact.shape))
            yield causes.SHARD_MISPLACED(element=cut), moved
    yield from _of_rank_zero(optimizer)


def _of_rank_zero(optimizer: Optimizer) -> Iterator[tuple[Cause, Optimizer]]:
    """Every rank has loaded rank 0's shard of the flat buffer of all parameters, in either order."""
    parts = ("",) if optimizer.spec.name == "sgd" else (".m", ".s")
    ends = {part: [key for key in optimizer.state if key.endswith(part)] for part in parts}
    for way in (1, -1):
        moved = optimizer.copy()
        for keys in ends.values():
            keys = keys[::way]
            flat = [optimizer.state[key].exact.reshape(len(optimizer.state[key].exact), -1) for key in keys]
            if not flat or (ranks := len(flat[0])) < 2:
                return
            whole = np.concatenate(flat, axis=1)
            shard = -(-whole.shape[1] // ranks)
            wrong = np.tile(whole[:, :shard], ranks)[:, : whole.shape[1]]
            for key, array in zip(
                keys, np.split(wrong, np.cumsum([one.shape[1] for one in flat])[:-1], axis=1), strict=True
            ):
                moved.state[key] = Value(array.reshape(optimizer.state[key].exact.shape))
        yield causes.SHARD_OF_RANK_0(), moved
