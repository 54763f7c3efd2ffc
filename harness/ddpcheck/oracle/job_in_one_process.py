"""Replays a Job in one process: the expected results of each operation on every rank, under the promised conventions.

Every array has the rank as its first axis. A synchronised gradient is the mean of the ranks' local gradients (or their
sum, or their mean weighted by batch sizes: ReplicaPromises.gradient and uneven_batches). For equal shards and mean
losses this is the large batch's gradient. Gradients that earlier backwards left local inside no_sync() are added at the
next synchronised backward, with its weights. An empty batch has loss and gradient 0. If samples have weights, a rank's
loss is their weighted mean, and ranks count by their sums of weights, or equally: ReplicaPromises.sample_weights.

Where correct ranks may differ, only promises are judged. Batch norm's running statistics are those of rank 0's own
batches on rank 0; the other ranks may take them over before each forward, or not. If batch norm is promised to be
synchronised, statistics are those of all ranks' samples, on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from .. import job as ops
from ..contract import Capabilities
from ..job import Job
from ..operations.replica import of_two_replicas
from ..seeded_values import Array
from . import rounding_bounds
from .bounded_values import Value, combine
from .clipping import global_norm
from .expected_values import ExpectedArray, ExpectedOperation
from .gradients import Gradients
from .history import Done, History
from .job_constants import Case
from .network import evaluate, outputs
from .observations import gradients_shown, tensors_shown
from .origins import Losses, Norm
from .passes import Pass
from .training_state import Weights

_unbounded_is_no_error = np.errstate(over="ignore", invalid="ignore")
"""Bounds may overflow; they are then infinite."""


class Oracle:
    """The walk through one Job. Without `bounds`, for Jobs whose sums are exact, rounding is not bounded.

    rates: the learning rate of each Step, if a schedule changes it. It may be off by a few roundings for each step.
    """

    def __init__(
        self, job: Job, capabilities: Capabilities, *, bounds: bool = False, rates: Sequence[float] = ()
    ) -> None:
        self.case: Case = Case(job, capabilities)
        self.weights: Weights = Weights(self.case, bounds=bounds, rates=rates)
        self.learned: list[str] = [name for name in self.case.parameters if self.case.described[name].role == "learned"]
        self._frozen: list[str] = []  # trained before, or to be trained later
        self._bounded = bounds
        self._gradients = Gradients(self.case, self.learned)
        self._history = History()
        self._windows = 0  # the depth of nested no_sync
        self._resumed = False

    def walk(self) -> Iterator[ExpectedOperation]:
        """Expected results, one operation after the other. Operations without a replica have no results."""
        oracles: list[Oracle] = [self]
        for position, (replica, op) in enumerate(of_two_replicas(self.case.job.operations)):
            if replica == len(oracles):
                oracles.append(Oracle(self.case.job.of_second(), self.case.promised, bounds=self._bounded))
            yield oracles[replica]._after(position, op)

    def goes_on_from(self, what: str, shown: Sequence[Mapping[str, Array | None]]) -> bool:
        """Take the values of this kind that the ranks show in place of the expected ones, for a Job with one replica. False
        if a value is missing.
        """
        if what == "gradients":
            return self._gradients.replaced(shown, self.weights.zeros)
        return self.weights.replaced(what, shown)

    def _after(self, position: int, op: ops.Operation) -> ExpectedOperation:
        moment = ExpectedOperation(position, op)
        if isinstance(op, ops.Backward) and op.broken:
            pass  # the following zero_grad removes its gradients
        elif isinstance(op, ops.Backward):
            loss = self._both(op) if op.second else self._backward(op)
            forward, trained = self._history.backwards[-1].forward, self.weights.trained
            origin = Losses(forward, loss.exact, self.case, trained, self._resumed)
            moment = replace(moment, numbers={"loss": loss}, made_of=origin)
        elif isinstance(op, ops.Observe):
            moment = replace(moment, arrays={what: self._observed(what) for what in op.what})
        elif isinstance(op, ops.ZeroGrad):
            self._zero_grad(to_zeros=op.to_zeros)
        elif isinstance(op, (ops.OpenWindow, ops.CloseWindow)):
            self._windows += 1 if isinstance(op, ops.OpenWindow) else -1
        elif isinstance(op, ops.Join):
            self._join(op)
        elif isinstance(op, ops.Remeasure):
            self._remeasure(op)
        elif isinstance(op, ops.SetTrainable):
            self._set_trainable(op)
        elif isinstance(op, ops.Step):
            self._step()
        elif isinstance(op, ops.Clip):
            uses = {name: self.case.uses(name) for name in self.learned}
            norm = Norm(self._history, uses, op.max_norm)
            moment = replace(moment, numbers={"norm": self._clip(op.max_norm)}, made_of=norm)
        elif isinstance(op, ops.Predict):
            promised = (0,) if self.case.batch_norms and self.weights.apart else self.case.everyone
            moment = replace(moment, outputs=self._predict(op), promised=promised)
        elif isinstance(op, ops.Save):
            self.weights.save(op.name)
        elif isinstance(op, ops.Resume):
            self.weights.resume(op.name)
            self._resumed = True
            self._zero_grad()
        return moment

    def _observed(self, what: str) -> dict[str, ExpectedArray]:
        case, weights = self.case, self.weights
        if what == "gradients":
            return gradients_shown(
                case, self._gradients, weights.zeros, self._frozen, self._history, trained=weights.trained
            )
        if what == "averaged":
            return tensors_shown(case, weights.averages, weights.averaged, apart=weights.apart)
        values = weights.buffers() if what == "buffers" else weights.parameters()
        return tensors_shown(case, values, weights.origins, apart=weights.apart)

    def _zero_grad(self, *, to_zeros: bool = False) -> None:
        """to_zeros: gradients become zeros where all ranks hold one. Checks do not draw it for gradients local to
        no_sync.
        """
        before = self._gradients
        there = {name: self.weights.zeros[name] for name in before.of if to_zeros and before.everywhere(name)}
        self._gradients = Gradients(self.case, self.learned, there)
        self._history = self._history.zeroed()

    @_unbounded_is_no_error
    def _backward(self, op: ops.Backward, live: int | None = None) -> Value:
        """live: the number of ranks in a mean, if not all."""
        case, shards = self.case, self.case.shards(op.samples, op.branches, op.weights)
        tensors = self.weights.tensors
        learned = {name: tensors[name] for name in self.learned}
        fixed = {name: value for name, value in tensors.items() if name not in learned}
        forward = Pass(case.model, rounding_bounds.exact_parts(learned), rounding_bounds.exact_parts(fixed), shards)
        found = evaluate(case.model, forward.learned, forward.fixed, shards)
        losses: Array | None = None
        errors: dict[str, Array] = {}
        if self._bounded:
            losses, errors = rounding_bounds.of_training(case.model, learned, fixed, shards, found)
        used = {name: case.used(name, shards) for name in learned}
        self._gradients.add({name: Value(own, errors.get(name)) for name, own in found.gradients.items()}, used)
        inside = not op.sync or self._windows > 0
        if not inside:
            self._gradients.synchronise(shards, live or len(case.everyone))
        self._history = self._history.then(Done(forward, found.gradients, used, dict(self._gradients.of)))
        self.weights.track(found, shards, inside=inside)
        if not np.isfinite(found.losses).all():
            losses = np.where(np.isfinite(found.losses), 0.0 if losses is None else losses, np.inf)
        return Value(found.losses, losses)

    def _both(self, op: ops.Backward) -> Value:
        first = self._backward(replace(op, second=(), sync=False))
        second = self._backward(ops.Backward(op.second, op.sync))
        return combine([(1, first), (1, second)], 1, self.case.model.dtype)

    def _join(self, op: ops.Join) -> None:
        for number in range(op.rounds()):
            samples = op.round(number)
            self._zero_grad()
            live = sum(map(bool, samples)) if self.case.promised.replica.join == "divide_by_live_ranks" else None
            self._backward(ops.Backward(samples), live)
            self._step()

    def _remeasure(self, op: ops.Remeasure) -> None:
        shards = replace(self.case.shards(op.samples), together=True)
        exact = rounding_bounds.exact_parts(self.weights.tensors)
        found = evaluate(self.case.model, {name: exact[name] for name in self.learned}, exact, shards)
        self.weights.remeasure(found, shards)

    def _set_trainable(self, op: ops.SetTrainable) -> None:
        switched = {name for name in self.case.parameters if name.rpartition(".")[0] in op.layers}
        learned = {*self.learned, *switched} if op.trainable else {*self.learned} - switched
        known = {*self.learned, *self._frozen, *switched}
        self.learned = [name for name in self.case.parameters if name in learned]
        self._frozen = [name for name in self.case.parameters if name in known - learned]
        self._zero_grad()

    @_unbounded_is_no_error
    def _step(self) -> None:
        self.weights.step(self._gradients, self._history)

    @_unbounded_is_no_error
    def _clip(self, max_norm: float) -> Value:
        shown = self._observed("gradients")
        norm = global_norm([entry.value for entry in shown.values()], self.case.model.dtype)
        self._gradients.clip(norm, max_norm)
        return norm

    @_unbounded_is_no_error
    def _predict(self, op: ops.Predict) -> tuple[Value, ...]:
        shards, tensors = self.case.shards(op.samples, op.branches), self.weights.tensors
        exact = outputs(self.case.model, rounding_bounds.exact_parts(tensors), shards)
        errors = rounding_bounds.of_outputs(self.case.model, tensors, shards) if self._bounded else None
        return tuple(
            Value(exact[rank, :rows], None if errors is None else errors[rank, :rows])
            for rank, rows in enumerate(shards.counts)
        )
