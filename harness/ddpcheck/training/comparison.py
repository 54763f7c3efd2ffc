"""Compares the result with that of a single process, which trains on the batches of all ranks as one batch.

The oracle trains again in float64: with the same initial values, and for each step with the samples of all ranks, in
the order of the ranks, as one batch. It shares no code with the implementation's forward, backward and optimizer. An
implementation in float32 cannot get the same values: rounding changes parameters, and training amplifies small
differences. The size of this effect is measured: the oracle also trains as the ranks do, in their dtype and shares,
from initial values that are off by one rounding. The difference between the two is the effect of rounding alone, up to
chance: another order of the same sums gives nearly the same size (within a factor of 4 in several hundred runs on
digits). A difference of LEEWAY times as much counts as equal.

With relu there is another effect. Rounding may move a sample across the kink and so switch its gradient on or off; then
training takes another course, with differences a thousand times larger. Initial values that are off by KINKS roundings
cause about as many times more such events, so their effect on the parameters covers that of a single event.

With too large a learning rate, rounding moves parameters nearly as far as training does. A difference that rounding
explains, but that is a noticeable part of that distance, proves nothing: the result is "unknown", which is no success.
Adam hides a wrong scale of all gradients; SGD shows it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..causes import Cause, values
from ..models.spec import Activation, ModelSpec
from ..oracle.bounded_values import Value
from ..oracle.network import Shards, evaluate, outputs
from ..oracle.optimizer import Optimizer
from ..seeded_values import Array, key_of, numbers
from .datasets import DataSet, Samples
from .display import percent
from .initial_values import initial_values
from .one_process import OneProcess
from .plan import TrainingPlan, windows

LEEWAY = 10.0
KINKS = 100.0
_NOTICEABLE = 0.01

Order = npt.NDArray[np.int64]
"""The samples of one epoch: (ranks, samples of each)."""


@dataclass(frozen=True)
class Comparison:
    """Largest differences over all parameters.

    difference: to the single-process run, in the parameter `worst`. rounding: the effect of rounding alone. kink: its
    effect if it moves a sample across a kink (0: not possible). moved: the distance that training moved the parameters.
    accuracies: None if only the first steps are compared.
    """

    difference: float
    worst: str
    rounding: float
    kink: float
    moved: float
    accuracy: float | None
    expected_accuracy: float | None
    dtype: str
    cause: Cause | None = None

    @property
    def tolerance(self) -> float:
        return max(LEEWAY * self.rounding, self.kink)

    @property
    def verdict(self) -> Literal["equal", "different", "unknown"]:
        if self.difference <= min(self.tolerance, _NOTICEABLE * self.moved):
            return "equal"
        return "unknown" if self.difference <= self.tolerance else "different"  # NaN counts as different

    def in_words(self) -> str:
        start = {
            "equal": "equals the single-process run",
            "different": "DIFFERS from the single-process run",
            "unknown": "CANNOT TELL whether this equals the single-process run",
        }[self.verdict]
        place = "" if self.verdict == "equal" else f" (in {self.worst})"
        crossing = f", {self.kink:.1e} where it moves samples across a relu's kink" if self.kink else ""
        text = (
            f"{start}: largest parameter difference {self.difference:.1e}{place}, "
            f"{self.dtype} rounding alone makes {self.rounding:.1e}{crossing}"
        )
        if self.accuracy is not None and self.expected_accuracy is not None:
            sign = "=" if self.accuracy == self.expected_accuracy else "and"
            text += f"; test accuracy {percent(self.accuracy)} {sign} {percent(self.expected_accuracy)}"
        if self.verdict == "unknown":
            text += (
                f"\nrounding can move parameters nearly as far as training does ({self.moved:.1e}); compare a more stable run: "
                "a smaller learning rate, fewer epochs, or tanh"
            )
        return f"{text}\nlikely cause: {self.cause.headline}" if self.cause else text


def compare(
    plan: TrainingPlan, model: ModelSpec, data: DataSet, orders: Sequence[Order], parameters: Mapping[str, Array]
) -> Comparison:
    """Judge the parameters after training on the samples in `orders`."""
    run = _Run(plan, model, data, len(orders[0]) if orders else 1)
    exact = run.train(orders)
    difference, worst = _apart(parameters, exact)
    has_kinks = any(isinstance(layer, Activation) and layer.function == "relu" for layer in model.layers)
    found = Comparison(
        difference,
        worst,
        rounding=_apart(run.train(orders, off=1.0), exact)[0],
        kink=_apart(run.train(orders, off=KINKS), exact)[0] if has_kinks else 0.0,
        moved=_apart(initial_values(model, plan.seed, 0), exact)[0],
        accuracy=_accuracy(model, parameters, data.test),
        expected_accuracy=_accuracy(model, exact, data.test),
        dtype=model.dtype,
    )
    if found.verdict != "different":
        return found
    return dataclasses.replace(found, cause=_likely_cause(run, orders, parameters, found.tolerance))


def compare_first_steps(run: OneProcess) -> Comparison:
    """Compare a run's first steps with those of one process of the same implementation. Every rank calls it.

    The effect of rounding is measured by training again with learning rates that are off by roundings.
    """
    exact = run.parameters()
    difference, worst = _apart(run.first.parameters, exact)
    return Comparison(
        difference,
        worst,
        rounding=_apart(run.parameters(off=1.0), exact)[0],
        kink=_apart(run.parameters(off=KINKS), exact)[0],
        moved=_apart(run.parameters(steps=0), exact)[0],
        accuracy=None,
        expected_accuracy=None,
        dtype="float32",
    )


def _likely_cause(
    run: _Run, orders: Sequence[Order], parameters: Mapping[str, Array], tolerance: float
) -> Cause | None:
    """The usual mistake that would give exactly these parameters; None if there is none."""
    ranks = len(orders[0])
    if ranks == 1:
        return None
    mistakes = {
        values.SUMMED_NOT_AVERAGED(world_size=ranks): run.train(orders, factor=float(ranks)),
        values.DIVIDED_TOO_OFTEN(world_size=ranks): run.train(orders, factor=1 / ranks),
        values.NOT_REDUCED(): run.train([o[:1] for o in orders]),
    }
    apart = {cause: _apart(parameters, wrong)[0] for cause, wrong in mistakes.items()}
    return next((cause for cause, distance in apart.items() if distance <= tolerance), None)


@dataclass(frozen=True)
class _Run:
    plan: TrainingPlan
    model: ModelSpec
    data: DataSet
    world_size: int

    @np.errstate(all="ignore")  # a mistake may make parameters overflow
    def train(self, orders: Sequence[Order], *, off: float = 0.0, factor: float = 1.0) -> dict[str, Array]:
        """The parameters after training in float64 on whole batches.

        off: train as the ranks do instead, in their dtype and shares, from values that are off by this many roundings.
        factor: a wrong scale of the gradients.
        """
        plan = self.plan
        dtype = np.dtype(self.model.dtype if off else "float64")
        initial = initial_values(self.model, plan.seed, 0)
        tensors = {
            name: _off_by(off, array, position).astype(dtype) for position, (name, array) in enumerate(initial.items())
        }
        optimizer = Optimizer(plan.optimizer_spec(plan.lr), self.model.dtype)
        for epoch, order in enumerate(orders):
            optimizer.spec = plan.optimizer_spec(plan.learning_rate(epoch, self.world_size))
            for parts in windows(order.shape[1], plan.batch_size, plan.accumulation):
                indices = order[:, parts[0].start : parts[-1].stop]
                gradients = self._gradients(tensors, indices if off else indices.reshape(1, -1), factor)
                for name, gradient in gradients.items():
                    new = optimizer.step(name, Value(tensors[name]), Value(gradient.astype(dtype)))
                    tensors[name] = new.exact.astype(dtype)
        return tensors

    def _gradients(self, tensors: Mapping[str, Array], indices: Order, factor: float) -> dict[str, Array]:
        """The mean over the rows of `indices` of the gradients of each row's mean loss, clipped."""
        rows, count = indices.shape
        inputs = self.data.train.inputs[indices].astype(next(iter(tensors.values())).dtype)
        shards = Shards(inputs, self.data.train.labels[indices], np.full(rows, count), {})
        learned = {name: np.broadcast_to(array, (rows, *array.shape)) for name, array in tensors.items()}
        found = evaluate(self.model, learned, {}, shards).gradients
        gradients = {name: factor * gradient.mean(axis=0) for name, gradient in found.items()}
        if self.plan.clip is not None:
            norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
            scale = min(1.0, self.plan.clip / norm) if norm else 1.0
            gradients = {name: scale * gradient for name, gradient in gradients.items()}
        return gradients


def _off_by(roundings: float, array: Array, position: int) -> Array:
    unit = roundings * float(np.finfo(array.dtype).eps) / 2
    return np.asarray(array * (1 + unit * numbers(array.shape, "float64", "real", key_of(position), 1)))


def _apart(left: Mapping[str, Array], right: Mapping[str, Array]) -> tuple[float, str]:
    """The largest difference and its parameter; NaN counts as the largest."""
    apart = {name: float(np.max(np.abs(left[name] - array))) for name, array in right.items()}
    worst = max(apart, key=lambda name: math.inf if math.isnan(apart[name]) else apart[name])
    return apart[worst], worst


def _accuracy(model: ModelSpec, parameters: Mapping[str, Array], samples: Samples) -> float:
    tensors = {name: array[None].astype(np.float64) for name, array in parameters.items()}
    shards = Shards(samples.inputs[None].astype(np.float64), samples.labels[None], np.array([len(samples)]), {})
    return float((outputs(model, tensors, shards)[0].argmax(axis=1) == samples.labels).mean())
