"""Replicas of which a method other than the reduction is wrong only under some circumstance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from effect_reports import report_effect
from history import CIRCUMSTANCES, Remembering, made_of, promised

from ddpcheck.contract.adapter import Batch, Facets
from ddpcheck.seeded_values import Array

__all__ = ["CIRCUMSTANCES", "EFFECTS", "promised", "wrapped"]
Right = Callable[..., Any]
Effect = Callable[..., Any]
"""Called with the replica, the right method, and its arguments."""


def _with_spec(**changes: Callable[[float], Any]) -> Effect:
    def step(r: Remembering, right: Right) -> None:
        was = r.spec
        r.optimizer._spec = replace(was, **{name: by(getattr(was, name)) for name, by in changes.items()})  # type: ignore[attr-defined]
        right()
        r.optimizer._spec = was  # type: ignore[attr-defined]

    return step


def _with_rate(factor: Callable[[Remembering], float]) -> Effect:
    def step(r: Remembering, right: Right) -> None:
        was = r.optimizer.lr
        r.optimizer.lr = was * factor(r)
        right()
        r.optimizer.lr = was

    return step


def _with_gradients(chosen: Callable[[Remembering, dict[str, Array]], Mapping[str, Array]]) -> Effect:
    return lambda r, right: r.optimizer.step(chosen(r, r._shown()))


def _forgetting(part: str) -> Effect:
    def step(r: Remembering, right: Right) -> None:
        getattr(r.optimizer, part, {}).clear()
        right()

    return step


def _norm(gradients: Mapping[str, Array], order: float = 2) -> float:
    with np.errstate(all="ignore"):
        flat = [np.zeros(1), *(np.asarray(g, np.float64).reshape(-1) for g in gradients.values())]
        return float(np.linalg.norm(np.concatenate(flat), order))


def _clip(norm: Callable[[Remembering, float], float], told: Callable[[Remembering, float], float]) -> Effect:
    """Clips by another norm, or returns another one; both functions get the right norm before clipping."""

    def clip(r: Remembering, right: Right, max_norm: float) -> float:
        due = _norm(r._shown())
        by = norm(r, due)
        r.scale(min(1.0, max_norm / by) if by else 1.0)
        return told(r, due)

    return clip


def _first_parameter_only(r: Remembering) -> float:
    return _norm(dict([*r._shown().items()][:1]))


def _stretch(r: Remembering, right: Right, max_norm: float) -> float:
    norm = _norm(r._shown())
    r.scale(max_norm / norm if norm and np.isfinite(max_norm) else 1.0)
    return norm


def _each(r: Remembering, right: Right, max_norm: float) -> float:
    norm = _norm(r._shown())
    for gradients in (r.synced, r.local):
        for name, own in gradients.items():
            gradients[name] = np.asarray(own * min(1.0, max_norm / (_norm({name: own}) or max_norm)), own.dtype)
    return norm


def _changed(state: Mapping[str, Array], part: str, by: Callable[[Array], Array]) -> dict[str, Array]:
    return {name: by(array) if name.startswith(part) else array for name, array in state.items()}


def _first_kept(r: Remembering, right: Right, state: Mapping[str, Array]) -> None:
    name = next(iter(r.network.parameters))
    right({**state, name: r.network.parameters[name].copy()})


def _rows(batch: Batch, rows: Any) -> Batch:
    return replace(batch, inputs=batch.inputs[rows], targets=batch.targets[rows])


def _training(r: Remembering, right: Right, batch: Batch) -> Array:
    return r.network._forward(batch.inputs, batch.branches, training=True)


def _after(*more: Callable[[Remembering], Any]) -> Effect:
    def method(r: Remembering, right: Right, *arguments: Any) -> Any:
        found = right(*arguments)
        for one in more:
            one(r)
        return found

    return method


def _rounded(r: Remembering) -> None:
    for array in r.network.parameters.values():
        array[...] = np.asarray(array, np.float16)


def _shrink_frozen(r: Remembering) -> None:
    for name in {*r.network.parameters} - {*r.network.learned}:
        r.network.parameters[name] *= np.asarray(0.99, r.network.parameters[name].dtype)


def _unequal(r: Remembering) -> None:
    last = [*r.network.parameters.values()][-1]
    if r.rank == 1:
        last[...] = np.nextafter(last, np.asarray(np.inf, last.dtype))


EFFECTS: dict[str, tuple[str, Effect]] = {
    "no step is taken": ("step", lambda r, right: None),
    "the last rank takes no step": ("step", lambda r, right: None if r.rank == r.world - 1 else right()),
    "the step is taken twice": ("step", lambda r, right: (right(), right())),
    "the learning rate is 1 % too large": ("step", _with_rate(lambda r: 1.01)),
    "the learning rate is divided by the world size": ("step", _with_rate(lambda r: 1 / r.world)),
    "rank 1 has another learning rate": ("step", _with_rate(lambda r: 1 + (r.rank == 1))),
    "weights do not decay": ("step", _with_spec(weight_decay=lambda decay: 0.0)),
    "weights decay twice": ("step", _with_spec(weight_decay=lambda decay: 2 * decay)),
    "momentum is 1 % less": ("step", _with_spec(momentum=lambda momentum: 0.99 * momentum)),
    "momentum is forgotten": ("step", _forgetting("_velocity")),
    "Adam's first moments are forgotten": ("step", _forgetting("_first")),
    "Adam counts from 1 again": ("step", _forgetting("_steps")),
    "Adam's eps is 1e-5": ("step", _with_spec(eps=lambda eps: 1e-5)),
    "Adam's second beta is 0.99": ("step", _with_spec(betas=lambda betas: (betas[0], 0.99))),
    "the last parameter is left out": ("step", _with_gradients(lambda r, shown: dict([*shown.items()][:-1]))),
    "what was gathered in no_sync() is left out": ("step", _with_gradients(lambda r, shown: r.synced)),
    "signs alone are used": ("step", _with_gradients(lambda r, shown: {n: np.sign(g) for n, g in shown.items()})),
    "parameters without gradient are stepped": (
        "step",
        _with_gradients(
            lambda r, shown: {n: shown.get(n, np.zeros_like(r.network.parameters[n])) for n in r.network.learned}
        ),
    ),
    "parameters are rounded to float16": ("step", _after(_rounded)),
    "frozen parameters shrink": ("step", _after(_shrink_frozen)),
    "the step takes the gradients away": ("step", _after(lambda r: r.synced.clear())),
    "parameters differ by one bit": ("step", _after(_unequal)),
    "it is not clipped": ("clip", lambda r, right, norm: _norm(r._shown())),
    "it is clipped to half": ("clip", lambda r, right, norm: right(norm / 2)),
    "it is clipped by the largest element": (
        "clip",
        _clip(lambda r, due: _norm(r._shown(), np.inf), lambda r, due: due),
    ),
    "it is clipped by the first parameter": (
        "clip",
        _clip(lambda r, due: _first_parameter_only(r), lambda r, due: due),
    ),
    "it is clipped by squares": ("clip", _clip(lambda r, due: due**2, lambda r, due: due)),
    "each parameter is clipped by itself": ("clip", _each),
    "short gradients are stretched": ("clip", _stretch),
    "it tells the norm after clipping": ("clip", _clip(lambda r, due: due, lambda r, due: _norm(r._shown()))),
    "it tells 0 for the norm": ("clip", _clip(lambda r, due: due, lambda r, due: 0.0)),
    "the norm of the first rank's own is used": ("clip", _clip(lambda r, due: due * (1 + r.rank), lambda r, due: due)),
    "buffers are not broadcast": ("before_forward", lambda r, right: None),
    "the loss is the mean of all ranks": ("backward", lambda r, right, batch: _common(r, right(batch))),
    "the loss is not scaled": ("backward", lambda r, right, batch: right(batch) / r.model.loss_scale),
    "the loss is that of the batch before": ("backward", lambda r, right, batch: _late(r, right(batch))),
    "the last sample is left out": ("backward", lambda r, right, batch: right(_rows(batch, slice(None, -1)))),
    "targets are one row off": (
        "backward",
        lambda r, right, batch: right(replace(batch, targets=np.roll(batch.targets, 1, axis=0))),
    ),
    "branches are all used": (
        "backward",
        lambda r, right, batch: right(replace(batch, branches=tuple(sorted({*batch.branches, *_branches(r)})))),
    ),
    "earlier gradients are lost": ("backward", lambda r, right, batch: (r.synced.clear(), right(batch))[1]),
    "what was gathered in no_sync() is lost": ("backward", lambda r, right, batch: (r.local.clear(), right(batch))[1]),
    "what was gathered in no_sync() is divided": ("backward", lambda r, right, batch: (_divide(r), right(batch))[1]),
    "the last gradient stays": ("zero_grad", lambda r, right: _stays(r, right)),
    "momentum is taken away, too": ("zero_grad", _after(lambda r: r.optimizer.load_state({}))),
    "nothing is taken away": ("zero_grad", lambda r, right: None),
    "what was gathered in no_sync() stays": ("zero_grad", lambda r, right: r.synced.clear()),
    "gradients are taken away": ("zero_gradients", lambda r, right: r.zero_grad()),
    "only what is reduced is zeroed": ("zero_gradients", lambda r, right: _zero_synced(r)),
    "None is told as zeros": (
        "gradients",
        lambda r, right: {n: np.zeros_like(r.network.parameters[n]) if g is None else g for n, g in right().items()},
    ),
    "zeros are told as None": (
        "gradients",
        lambda r, right: {n: None if g is None or (g.size and not g.any()) else g for n, g in right().items()},
    ),
    "the last parameter is not told": ("parameters", lambda r, right: dict([*right().items()][:-1])),
    "momentum is not saved": (
        "state",
        lambda r, right: {
            n: a for n, a in right().items() if not n.startswith(("optimizer.velocity", "optimizer.first"))
        },
    ),
    "the state is of float32": (
        "state",
        lambda r, right: _changed(
            right(), "", lambda a: a.astype(np.float32).astype(a.dtype) if a.dtype.kind == "f" else a
        ),
    ),
    "the state holds the live parameters": ("state", lambda r, right: {**right(), **r.network.parameters}),
    "the optimizer's state is halved": (
        "state",
        lambda r, right: _changed(right(), "optimizer.", lambda a: a // 2 if a.dtype.kind == "i" else a / 2),
    ),
    "the optimizer's state is not loaded": (
        "load_state",
        lambda r, right, state: right({n: a for n, a in state.items() if not n.startswith("optimizer.")}),
    ),
    "the first parameter is not loaded": ("load_state", _first_kept),
    "buffers are not loaded": ("load_state", lambda r, right, state: right({**state, **r.buffers()})),
    "what is loaded differs by one bit": ("load_state", _after(_unequal)),
    "it predicts as in training": ("predict", _training),
    "the last prediction is the first": (
        "predict",
        lambda r, right, batch: right(_rows(batch, [*range(len(batch.inputs) - 1), 0] if len(batch.inputs) else [])),
    ),
    "predictions are of float16": (
        "predict",
        lambda r, right, batch: right(batch).astype(np.float16).astype(r.model.dtype),
    ),
    "branches are left out": ("predict", lambda r, right, batch: right(replace(batch, branches=()))),
    "predicting takes gradients away": ("predict", lambda r, right, batch: (r.synced.clear(), right(batch))[1]),
    "momentum is forgotten when layers switch": (
        "set_trainable",
        _after(lambda r: r.optimizer.load_state({})),
    ),
    "layers do not switch": ("set_trainable", lambda r, right, layers, trainable: None),
    "the first of the layers alone switches": (
        "set_trainable",
        lambda r, right, layers, trainable: right(layers[:1], trainable),
    ),
    "parameters are each rank's own": ("start", lambda r, right, model: None),
    "parameters are the last rank's": ("start", lambda r, right, model: _start(r, r.world - 1)),
    "the last parameter is not broadcast": ("start", lambda r, right, model: _start(r, 0, skip=-1)),
    "parameters are averaged": ("start", lambda r, right, model: _average(r)),
}
"""The affected method, and its changed behaviour."""


def _common(r: Remembering, loss: float) -> float:
    return float(r.comm.all_reduce(np.array(loss))) / r.world if r.syncing else loss


def _late(r: Remembering, loss: float) -> float:
    kept = r.__dict__.get("loss", loss)
    r.__dict__["loss"] = loss
    return float(kept)


def _branches(r: Remembering) -> set[str]:
    return {layer.branch for layer in r.network._layers if layer.branch is not None}


def _divide(r: Remembering) -> None:
    r.local = {name: np.asarray(own / (r.micro + 1), own.dtype) for name, own in r.local.items()}


def _stays(r: Remembering, right: Right) -> None:
    kept = dict([*r.synced.items()][-1:])
    right()
    r.synced = kept


def _zero_synced(r: Remembering) -> None:
    r.synced = {name: np.zeros_like(own) for name, own in r.synced.items()}


def _start(r: Remembering, root: int, skip: int | None = None) -> None:
    for array in [*r.network.tensors.values()][:skip]:
        array[...] = r.comm.broadcast(array, root)


def _average(r: Remembering) -> None:
    for array in r.network.tensors.values():
        array[...] = (
            r.comm.all_reduce(array) // r.world if array.dtype.kind == "i" else r.comm.all_reduce(array) / r.world
        )


def wrapped(right: Facets, circumstance: str, effect: str) -> dict[str, Any]:
    """The facet, and no others."""
    method, by = EFFECTS[effect]
    holds = CIRCUMSTANCES[circumstance]

    def wrong(self: Any, *arguments: Any) -> Any:
        due = getattr(super(made, self), method)
        if not holds(self):
            return due(*arguments)
        report_effect()
        return by(self, due, *arguments)

    made = type("Wrong", (Remembering,), {method: wrong})
    return made_of(made, right)
