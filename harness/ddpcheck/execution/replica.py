"""Operations on a replica: adapter.Replica and ddpcheck.contract.optional_methods document each method."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from .. import job as ops
from ..contract.adapter import Batch
from ..contract.optional_methods import BackwardBroken
from .rank_state import RankState, Values
from .replica_state import arrays_of
from .result_validation import ContractViolation, checked_array, checked_number
from .timing import measured_steps


class _Interruption(Exception):
    """Raised and caught by the training program (job.Backward.interrupted)."""


def backward(rank_state: RankState, op: ops.Backward) -> Values:
    replica = rank_state.held.replica()
    batch = rank_state.held.batch(
        op.samples[rank_state.rank], op.branches_on(rank_state.rank), op.weights_on(rank_state.rank)
    )
    given = _bytes_of(batch)
    if op.broken:
        return _broken(rank_state, op, batch)
    values: Values = {}
    loss: Any = None
    if op.second:
        loss = rank_state.held.extra("backward_of_both")(batch, rank_state.held.batch(op.second[rank_state.rank]))
    elif op.sync:
        loss = replica.backward(batch)
    else:
        interrupted = rank_state.rank in op.interrupted
        try:
            with rank_state.held.extra("no_sync")():
                loss = replica.backward(batch)
                if interrupted:
                    raise _Interruption
            values |= {"swallowed": True} if interrupted else {}
        except _Interruption:
            pass
    values |= _changed(batch, given)
    rank_state.held.take_back(batch)
    return values | {"loss": checked_number(loss, "backward()")}


def _bytes_of(batch: Batch) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays_of(batch).items()}


def _changed(batch: Batch, before: Mapping[str, bytes]) -> Values:
    changed = [name for name, now in _bytes_of(batch).items() if now != before[name]]
    return {"batch_changed": changed} if changed else {}


def _broken(rank_state: RankState, op: ops.Backward, batch: Batch) -> Values:
    replica, breaks = rank_state.held.replica(), rank_state.rank in op.broken
    try:
        with nullcontext() if op.sync else rank_state.held.extra("no_sync")():
            (rank_state.held.extra("break_backward") if breaks else replica.backward)(batch)
    except BackwardBroken:
        return {}
    finally:
        rank_state.held.take_back(batch)
    return {"swallowed": True} if breaks else {}


def zero_grad(rank_state: RankState, op: ops.ZeroGrad) -> Values:
    (rank_state.held.extra("zero_gradients") if op.to_zeros else rank_state.held.replica().zero_grad)()
    return {}


def open_window(rank_state: RankState, op: ops.OpenWindow) -> Values:
    window = rank_state.held.extra("no_sync")()
    window.__enter__()
    rank_state.held.windows.append(window)
    return {}


def close_window(rank_state: RankState, op: ops.CloseWindow) -> Values:
    rank_state.held.windows.pop().__exit__(None, None, None)
    return {}


def clip(rank_state: RankState, op: ops.Clip) -> Values:
    return {"norm": checked_number(rank_state.held.extra("clip")(op.max_norm), "clip()")}


def step(rank_state: RankState, op: ops.Step) -> Values:
    rank_state.held.extra("step")()
    return {}


def observe(rank_state: RankState, op: ops.Observe) -> Values:
    declared, seen = rank_state.held.declared, Values()
    for what in op.what:
        got = rank_state.held.extra(what)()
        if what == "gradients":
            seen[what] = _gradients(rank_state, got)
        else:
            names = declared.buffers if what == "buffers" else declared.parameters
            seen[what] = declared.copied(got, f"{what}()", names)
    return seen


def _gradients(rank_state: RankState, got: Any) -> dict[str, Any]:
    declared, switched = rank_state.held.declared, rank_state.held.switched
    if switched and isinstance(got, Mapping):
        got = dict.fromkeys(switched) | dict(got)  # gradients of a frozen layer may be missing
    return declared.copied_optional(got, "gradients()", declared.learned | switched)


def set_trainable(rank_state: RankState, op: ops.SetTrainable) -> Values:
    parameters = rank_state.held.declared.parameters
    rank_state.held.switched |= {name for name in parameters if name.rpartition(".")[0] in op.layers}
    rank_state.held.extra("set_trainable")(list(op.layers), op.trainable)
    return {}


def join(rank_state: RankState, op: ops.Join) -> Values:
    replica = rank_state.held.replica()
    losses = []
    with rank_state.held.extra("join")():
        for samples in op.batches[rank_state.rank]:
            replica.zero_grad()
            losses.append(checked_number(replica.backward(rank_state.held.batch(samples)), "backward()"))
            replica.step()
    return {"losses": losses}


def remeasure(rank_state: RankState, op: ops.Remeasure) -> Values:
    rank_state.held.extra("remeasure")(rank_state.held.batch(op.samples[rank_state.rank]))
    return {}


def predict(rank_state: RankState, op: ops.Predict) -> Values:
    model, samples = rank_state.job.model, op.samples[rank_state.rank]
    assert model is not None
    shape = (len(samples), model.output_features)
    if not samples and not op.idle:
        return {"outputs": np.empty(shape, model.dtype)}
    batch = rank_state.held.batch(samples, op.branches[rank_state.rank] if op.branches else ())
    given = _bytes_of(batch)
    got = rank_state.held.replica().predict(batch)
    outputs = np.array(checked_array(got, shape, model.dtype, "predict()"))
    changed = _changed(batch, given)
    rank_state.held.take_back(batch)
    return {"outputs": outputs} | changed


def save(rank_state: RankState, op: ops.Save) -> Values:
    state = rank_state.held.extra("state")()
    if not isinstance(state, Mapping):
        raise ContractViolation(
            f"state() must return a mapping of names to NumPy arrays, and returned {type(state).__name__}"
        )
    other = [
        f"{name!r} is of {type(value).__name__}"
        for name, value in state.items()
        if not isinstance(value, (np.ndarray, np.generic))  # NumPy turns 0-d arrays into such scalars
    ]
    if other:
        raise ContractViolation(f"state() must return a mapping of names to NumPy arrays, but {', '.join(other[:3])}")
    saved = rank_state.held.saved[op.name] = {name: np.array(value) for name, value in state.items()}
    values: Values = {"names": sorted(state)}
    for name, copy in saved.items():
        rank_state.check_later(values, name, copy, state[name])
    return values


def resume(rank_state: RankState, op: ops.Resume) -> Values:
    rank_state.held.resume(op.name)
    return {}


def switch(rank_state: RankState, op: ops.Switch) -> Values:
    rank_state.switch()
    return {}


def measure_steps(rank_state: RankState, op: ops.MeasureSteps) -> Values:
    replica = rank_state.held.replica(op.options, op.named)
    return measured_steps(replica, rank_state.facets.counts, op, rank_state.held.batch(op.samples[rank_state.rank]))
