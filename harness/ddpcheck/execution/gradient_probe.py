"""One backward whose gradients each rank can compute locally, so large arrays need not go to the driver.

The model is y = s_1 ... s_k x W^T under the linear loss, with one sample on each rank, s = 1, integers for targets t, and
W = 0 if it is large. The gradient of W is then x t, and that of each s is x (W . t): integers, which add up exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..contract.adapter import Batch, Replica
from ..job import OptimizerSpec
from ..models.spec import Linear, ModelSpec, Scale
from ..operations.probes import ProbeGradients
from ..seeded_values import Array
from .rank_state import RankState, Values
from .result_validation import offered
from .timing import pattern

_SMALL = 1 << 12
"""Most elements whose products sum exactly in float32."""


def probe_gradients(rank_state: RankState, op: ProbeGradients) -> Values:
    """Run a ProbeGradients: compare the gradients with those computed on this rank."""
    world, rank = rank_state.job.world_size, rank_state.rank
    names = [f"scale{number}" for number in range(op.scalars)]
    model = ModelSpec(
        (*(Scale(name, 1) for name in names), Linear("fc", 1, op.elements, False)), "linear", 1.0, op.dtype
    )
    weight = pattern(op.elements, world, op.dtype) if op.elements <= _SMALL else np.zeros(op.elements, op.dtype)
    initial: dict[str, Array] = {f"{name}.scale": np.ones(1, op.dtype) for name in names}
    initial["fc.weight"] = weight.reshape(-1, 1)
    make = offered(rank_state.facets.make_replica, "make_replica")
    try:
        replica: Replica = make(model, initial, OptimizerSpec(op.optimizer, lr=1.0), dict(op.options))
    except Exception as error:
        if not op.options:
            raise
        return {"refused": f"{type(error).__name__}: {error}"}
    rank_state.progress(rank_state.position)
    factor = op.input or world
    x, targets = np.full((1, 1), factor, op.dtype), pattern(op.elements, rank, op.dtype)
    replica.backward(Batch(x, targets.reshape(1, -1)))
    rank_state.progress(rank_state.position)
    got = replica.gradients()
    total = targets.copy()
    for other in set(range(world)) - {rank}:
        total += pattern(op.elements, other, op.dtype)
    times = factor if op.summed else factor / world
    if times != 1:  # exact if the factor has few digits
        total = (total.astype(np.float64) * times).astype(op.dtype)
    rank_state.progress(rank_state.position)
    flat = _flat(got["fc.weight"], op)
    wrong = np.flatnonzero(flat != total)
    scalars = [float(_flat(got[f"{name}.scale"], op)[0]) for name in names]
    own = np.take(targets, wrong) * np.asarray(factor, op.dtype)
    found = np.take(flat, wrong)
    return {
        "refused": "",
        "wrong": len(wrong),
        "first": int(wrong[0]) if len(wrong) else -1,
        "last": int(wrong[-1]) if len(wrong) else -1,
        "local": bool(np.array_equal(found, own)),
        "zero": not found.any(),
        "scalars": scalars,
        "right_scalar": float(weight @ total),
    }


def _flat(gradient: Any, op: ProbeGradients) -> Array:
    """Return a flat gradient; zeros for None, which count as wrong."""
    return np.zeros(op.elements, op.dtype) if gradient is None else np.ravel(gradient)
