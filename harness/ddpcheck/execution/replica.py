"""Operations on a replica: adapter.Replica and ddpcheck.contract.extras document each method."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from .. import job as ops
from ..contract.adapter import Batch
from ..contract.extras import BackwardBroken
from .rank_state import RankState, Values
from .replica_state import arrays_of
from .result_validation import ContractViolation, checked_array, checked_number
from .timing import measured_steps


class _Interruption(Exception):
    """Raised and caught by the training program (job.Backward.interrupted)."""


def backward(here: RankState, op: ops.Backward) -> Values:
    replica = here.held.replica()
    batch = here.held.batch(op.samples[here.rank], op.branches_on(here.rank), op.weights_on(here.rank))
    given = _bytes_of(batch)
    if op.broken:
        return _broken(here, op, batch)
    values: Values = {}
    loss: Any = None
    if op.second:
        loss = here.held.extra("backward_of_both")(batch, here.held.batch(op.second[here.rank]))
    elif op.sync:
        loss = replica.backward(batch)
    else:
        interrupted = here.rank in op.interrupted
        try:
            with replica.no_sync():
                loss = replica.backward(batch)
                if interrupted:
                    raise _Interruption
            values |= {"swallowed": True} if interrupted else {}
        except _Interruption:
            pass
    values |= _changed(batch, given)
    here.held.take_back(batch)
    return values | {"loss": checked_number(loss, "backward()")}


def _bytes_of(batch: Batch) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays_of(batch).items()}


def _changed(batch: Batch, before: Mapping[str, bytes]) -> Values:
    changed = [name for name, now in _bytes_of(batch).items() if now != before[name]]
    return {"batch_changed": changed} if changed else {}


def _broken(here: RankState, op: ops.Backward, batch: Batch) -> Values:
    replica, breaks = here.held.replica(), here.rank in op.broken
    try:
        with nullcontext() if op.sync else replica.no_sync():
            (here.held.extra("break_backward") if breaks else replica.backward)(batch)
    except BackwardBroken:
        return {}
    finally:
        here.held.take_back(batch)
    return {"swallowed": True} if breaks else {}


def zero_grad(here: RankState, op: ops.ZeroGrad) -> Values:
    (here.held.extra("zero_gradients") if op.to_zeros else here.held.replica().zero_grad)()
    return {}


def open_window(here: RankState, op: ops.OpenWindow) -> Values:
    window = here.held.replica().no_sync()
    window.__enter__()
    here.held.windows.append(window)
    return {}


def close_window(here: RankState, op: ops.CloseWindow) -> Values:
    here.held.windows.pop().__exit__(None, None, None)
    return {}


def clip(here: RankState, op: ops.Clip) -> Values:
    return {"norm": checked_number(here.held.replica().clip(op.max_norm), "clip()")}


def step(here: RankState, op: ops.Step) -> Values:
    here.held.replica().step()
    return {}


def observe(here: RankState, op: ops.Observe) -> Values:
    declared, seen = here.held.declared, Values()
    for what in op.what:
        got = here.held.extra(what)()
        if what == "gradients":
            seen[what] = _gradients(here, got)
        else:
            names = declared.buffers if what == "buffers" else declared.parameters
            seen[what] = declared.copied(got, f"{what}()", names)
    return seen


def _gradients(here: RankState, got: Any) -> dict[str, Any]:
    declared, switched = here.held.declared, here.held.switched
    if switched and isinstance(got, Mapping):
        got = dict.fromkeys(switched) | dict(got)  # a frozen layer's may be left out
    return declared.copied_if_there(got, "gradients()", declared.learned | switched)


def set_trainable(here: RankState, op: ops.SetTrainable) -> Values:
    parameters = here.held.declared.parameters
    here.held.switched |= {name for name in parameters if name.rpartition(".")[0] in op.layers}
    here.held.extra("set_trainable")(list(op.layers), op.trainable)
    return {}


def join(here: RankState, op: ops.Join) -> Values:
    replica = here.held.replica()
    losses = []
    with here.held.extra("join")():
        for samples in op.batches[here.rank]:
            replica.zero_grad()
            losses.append(checked_number(replica.backward(here.held.batch(samples)), "backward()"))
            replica.step()
    return {"losses": losses}


def remeasure(here: RankState, op: ops.Remeasure) -> Values:
    here.held.extra("remeasure")(here.held.batch(op.samples[here.rank]))
    return {}


def predict(here: RankState, op: ops.Predict) -> Values:
    model, samples = here.job.model, op.samples[here.rank]
    assert model is not None
    shape = (len(samples), model.output_features)
    if not samples:
        return {"outputs": np.empty(shape, model.dtype)}
    batch = here.held.batch(samples, op.branches[here.rank] if op.branches else ())
    given = _bytes_of(batch)
    got = here.held.replica().predict(batch)
    outputs = np.array(checked_array(got, shape, model.dtype, "predict()"))
    changed = _changed(batch, given)
    here.held.take_back(batch)
    return {"outputs": outputs} | changed


def save(here: RankState, op: ops.Save) -> Values:
    state = here.held.replica().state()
    if not isinstance(state, Mapping):
        raise ContractViolation(
            f"state() must return a mapping of names to NumPy arrays, and returned {type(state).__name__}"
        )
    other = [
        f"{name!r} is of {type(value).__name__}"
        for name, value in state.items()
        if not isinstance(value, (np.ndarray, np.generic))  # what NumPy makes of 0-d arrays: as good as one
    ]
    if other:
        raise ContractViolation(f"state() must return a mapping of names to NumPy arrays, but {', '.join(other[:3])}")
    saved = here.held.saved[op.name] = {name: np.array(value) for name, value in state.items()}
    values: Values = {"names": sorted(state)}
    for name, copy in saved.items():
        here.check_later(values, name, copy, state[name])
    return values


def resume(here: RankState, op: ops.Resume) -> Values:
    here.held.resume(op.name)
    return {}


def switch(here: RankState, op: ops.Switch) -> Values:
    here.switch()
    return {}


def measure_steps(here: RankState, op: ops.MeasureSteps) -> Values:
    replica = here.held.replica(op.options, op.named)
    return measured_steps(replica, here.facets.counts, op, here.held.batch(op.samples[here.rank]))
