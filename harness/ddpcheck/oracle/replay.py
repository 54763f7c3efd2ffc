"""A Job again, in one process: what each operation must have shown on every rank, under the promised conventions.

Every array has the rank as its first axis. A synchronised gradient is the mean of the ranks' local ones (or their sum,
or their mean weighted by batch sizes: Capabilities.gradient and uneven_batches), which for equal shards and mean
losses is the large batch's gradient. What earlier backwards left local inside no_sync() joins in at the next
synchronised one, with that one's weights. An empty batch has loss and gradient 0.

Where ranks may rightly differ, only what is promised is said: batch norm's running statistics are those of rank 0's own
batches on rank 0; whether the others take them over before each forward is left open. Where batch norm is promised to
be synchronised, statistics are those of all ranks' samples, on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..capabilities import Capabilities
from ..job import (
    Backward,
    Clip,
    CloseWindow,
    Job,
    Join,
    Observe,
    OpenWindow,
    PerRank,
    Predict,
    Remeasure,
    Resume,
    Save,
    SetTrainable,
    Step,
    ZeroGrad,
)
from ..model import BatchNorm, Linear
from ..values import Array
from . import bounds
from .clipping import clipped, global_norm
from .moments import Contributions, Entry, Moment, Presence
from .network import Shards, evaluate, outputs, owner
from .optimizer import Optimizer
from .rounding import Value, combine, from_rank_zero, over_ranks
from .shares import Pass
from .statistics import running_statistics
from .updates import Loading, Update, losses_gone_wrong, norms_gone_wrong

_unbounded_is_no_error = np.errstate(over="ignore", invalid="ignore")
"""Bounds may grow past all numbers; they are infinite then."""


@dataclass
class _Gradient:
    """used: by which ranks, since zero_grad. synced: equal on all ranks. pending: left local by no_sync.

    own: all that each rank computed since zero_grad. last: of the last backward only.
    """

    used: Array
    synced: Value | None = None
    pending: Value | None = None
    own: Array | None = None
    first: Array | None = None
    last: Array | None = None


class Oracle:
    """The walk through one Job; without `bounds` nothing is said of rounding, for Jobs whose sums are exact.

    rates: the learning rate of each Step, if a schedule changes it. It may come out by a few roundings for each step.
    """

    def __init__(
        self, job: Job, capabilities: Capabilities, *, bounds: bool = False, rates: Sequence[float] = ()
    ) -> None:
        assert job.model is not None
        self.job, self.model, self.promised, self.bounded = job, job.model, capabilities, bounds
        self.everyone = tuple(range(job.world_size))
        self.described = {tensor.name: tensor for tensor in job.model.tensors()}
        self.learned = [name for name, tensor in self.described.items() if tensor.role == "learned"]
        self.statistics = [layer for layer in job.model.layers if isinstance(layer, BatchNorm)]
        self.frozen: list[str] = []  # learned before, or to be learned later
        self.users = {name: self._using(name) for name, tensor in self.described.items() if tensor.role != "buffer"}
        if job.data:
            inputs, targets = job.data.arrays(job.model)
            self.data = (inputs.astype(np.float64) if inputs.dtype.kind == "f" else inputs), targets
        self.tensors = self._start()
        self.optimizer = Optimizer(job.optimizer, job.model.dtype, roundings=3 + 4 * len(rates))
        self.rates = list(rates)
        self.averages = self._parameters()
        self.saved: dict[str, tuple[dict[str, Value], Optimizer, dict[str, Value]]] = {}
        self.changed: dict[str, Update | Loading] = {}  # what happened last to each tensor
        self.shown: dict[str, Array] = {}  # gradients after the last backward
        self.before: dict[str, Array] = {}
        self.own: dict[str, Array] = {}  # each rank's own gradients of the last backward in which it used them
        self.earlier: dict[str, Array] = {}  # the same, but one backward before
        self.counts = np.zeros(job.world_size)
        self.latest: Pass | None = None
        self.divisor = job.world_size
        self.windows = 0  # how deep inside no_sync
        self.tracked = False  # whether running statistics have moved since the ranks last held the same
        self._zero_grad()

    def walk(self) -> Iterator[Moment]:
        """What must be, one operation after the other. Operations that are none of a replica's show nothing."""
        for position, operation in enumerate(self.job.operations):
            moment = Moment(position, operation)
            if isinstance(operation, Backward):
                loss = self._both(operation) if operation.second else self._backward(operation)
                moment = replace(moment, numbers={"loss": loss}, known=losses_gone_wrong(loss.exact, self.counts))
            elif isinstance(operation, Observe):
                moment = replace(moment, arrays={what: self._observed(what) for what in operation.what})
            elif isinstance(operation, ZeroGrad):
                self._to_zeros() if operation.to_zeros else self._zero_grad()
            elif isinstance(operation, (OpenWindow, CloseWindow)):
                self.windows += 1 if isinstance(operation, OpenWindow) else -1
            elif isinstance(operation, Join):
                self._join(operation)
            elif isinstance(operation, Remeasure):
                self._remeasure(operation)
            elif isinstance(operation, SetTrainable):
                self._set_trainable(operation)
            elif isinstance(operation, Step):
                self._step()
            elif isinstance(operation, Clip):
                known = norms_gone_wrong([gradient.own for gradient in self.gradients.values()], operation.max_norm)
                moment = replace(moment, numbers={"norm": self._clip(operation.max_norm)}, known=known)
            elif isinstance(operation, Predict):
                promised = (0,) if self.statistics and self.tracked else self.everyone
                moment = replace(moment, outputs=self._predict(operation), promised=promised)
            elif isinstance(operation, Save):
                self.saved[operation.name] = dict(self.tensors), self.optimizer.copy(), dict(self.averages)
            elif isinstance(operation, Resume):
                self._resume(operation.name)
            yield moment

    # ------------------------------------------------------------------------------------------------------- operations

    def _start(self) -> dict[str, Value]:
        ranks = [self.job.initial(rank) for rank in self.everyone]
        made = {}
        for name, tensor in self.described.items():
            array = np.stack([rank[name] for rank in ranks]).astype(np.float64)
            array = from_rank_zero(array) if self._alike(tensor.role) else array
            made[name] = Value(array, np.zeros_like(array) if self.bounded else None)
        return made

    def _zero_grad(self) -> None:
        self.gradients = {name: _Gradient(np.zeros(len(self.everyone), bool)) for name in self.learned}
        self.backwards, self.reduced = 0, False

    def _to_zeros(self) -> None:
        """Only where a gradient is there on all ranks or on none; what some hold inside no_sync is no case for a check."""
        zeros = {
            name: self.tensors[name].zeros()
            for name, entry in self._observed("gradients").items()
            if set(entry.presence) == {"there"}
        }
        self._zero_grad()
        for name, zero in zeros.items():
            self.gradients[name].synced = zero

    @_unbounded_is_no_error
    def _backward(self, operation: Backward) -> Value:
        shards = self._shards(operation.samples, operation.branches)
        learned = {name: self.tensors[name] for name in self.learned}
        fixed = {name: value.exact for name, value in self.tensors.items() if name not in learned}
        self.latest = Pass(self.model, bounds.exact_parts(learned), fixed, shards)
        found = evaluate(self.model, self.latest.learned, fixed, shards)
        losses, errors = None, None
        if self.bounded:
            losses, errors = bounds.of_training(self.model, learned, fixed, shards, found)
        self.before, self.counts = self.shown, shards.counts
        sync = operation.sync and not self.windows
        self.earlier = dict(self.own)
        for name, gradient in self.gradients.items():
            used = self._used(name, shards)
            gradient.used = gradient.used | used
            if name in found.gradients:
                last = found.gradients[name].copy()
                if name in self.own:
                    last[~used] = self.own[name][~used]
                self.own[name] = last
            if name in found.gradients:
                local = Value(found.gradients[name], None if errors is None else errors[name])
                self._accumulate(gradient, local)
            if sync and gradient.pending is not None:
                self._synchronise(gradient, gradient.pending, shards.counts)
        self.backwards += 1
        self.reduced = self.reduced or sync
        self.shown = {name: self._sum(name).exact for name in found.gradients}
        for layer in self.statistics:
            self.tracked = self.tracked or (len(self.everyone) > 1 and not shards.together)
            first = layer is self.model.layers[0]
            self.tensors.update(running_statistics(layer, self.tensors, found, shards, self.model.dtype, first=first))
        if not np.isfinite(found.losses).all():
            losses = np.where(np.isfinite(found.losses), 0.0 if losses is None else losses, np.inf)
        return Value(found.losses, losses)

    def _both(self, operation: Backward) -> Value:
        first = self._backward(replace(operation, second=(), sync=False))
        second = self._backward(Backward(operation.second, operation.sync))
        return combine([(1, first), (1, second)], 1, self.model.dtype)

    def _join(self, operation: Join) -> None:
        for number in range(operation.rounds()):
            samples = operation.round(number)
            live = sum(map(bool, samples))
            self.divisor = live if self.promised.join == "divide_by_live_ranks" else len(self.everyone)
            self._zero_grad()
            self._backward(Backward(samples))
            self._step()
        self.divisor = len(self.everyone)

    def _remeasure(self, operation: Remeasure) -> None:
        shards = replace(self._shards(operation.samples, ()), together=True)
        exact = bounds.exact_parts(self.tensors)
        found = evaluate(self.model, {name: exact[name] for name in self.learned}, exact, shards)
        for layer in self.statistics:
            first = layer is self.model.layers[0]
            made = running_statistics(layer, self.tensors, found, shards, self.model.dtype, first=first, momentum=1.0)
            self.tensors.update({name: value for name, value in made.items() if ".running_" in name})
        self.tracked = False

    def _set_trainable(self, operation: SetTrainable) -> None:
        switched = {name for name in self.users if name.rpartition(".")[0] in operation.layers}
        learned = {*self.learned, *switched} if operation.trainable else {*self.learned} - switched
        known = {*self.learned, *self.frozen, *switched}
        self.learned = [name for name in self.users if name in learned]
        self.frozen = [name for name in self.users if name in known - learned]
        self._zero_grad()

    @_unbounded_is_no_error
    def _step(self) -> None:
        if self.rates:
            self.optimizer.spec = replace(self.optimizer.spec, lr=self.rates.pop(0))
        before, gradients = self.optimizer.copy(), self._observed("gradients")
        if self.promised.skips_nonfinite and not all(np.isfinite(g.value.exact).all() for g in gradients.values()):
            return
        for name, gradient in gradients.items():
            if set(gradient.presence) == {"there"}:
                self.changed[name] = Update(
                    name, self.tensors[name].exact, gradient.value.exact, self.gradients[name].own, before
                )
                self.tensors[name] = self.optimizer.step(name, self.tensors[name], gradient.value)
        if decay := self.optimizer.spec.averaging:
            for name, value in self._parameters().items():
                self.averages[name] = combine([(decay, self.averages[name]), (1 - decay, value)], 3, self.model.dtype)

    @_unbounded_is_no_error
    def _clip(self, max_norm: float) -> Value:
        norm = global_norm([entry.value for entry in self._observed("gradients").values()], self.model.dtype)
        for gradient in self.gradients.values():
            if gradient.synced is not None:
                gradient.synced = clipped(gradient.synced, norm, max_norm, self.model.dtype)
            if gradient.pending is not None:
                gradient.pending = clipped(gradient.pending, norm, max_norm, self.model.dtype)
        return norm

    @_unbounded_is_no_error
    def _predict(self, operation: Predict) -> tuple[Value, ...]:
        shards = self._shards(operation.samples, operation.branches)
        exact = outputs(self.model, bounds.exact_parts(self.tensors), shards)
        errors = bounds.of_outputs(self.model, self.tensors, shards) if self.bounded else None
        return tuple(
            Value(exact[rank, :rows], None if errors is None else errors[rank, :rows])
            for rank, rows in enumerate(shards.counts)
        )

    def _resume(self, name: str) -> None:
        """Every rank goes on with what it saved itself, which differs where construction leaves ranks different."""
        tensors, optimizer, averages = self.saved[name]
        initial = [self.job.initial_of_resumed(rank) for rank in self.everyone]
        for key, value in self.tensors.items():
            of_ranks = np.stack([rank[key] for rank in initial]).astype(np.float64)
            self.changed[key] = Loading(of_ranks, value.exact, self.changed.get(key))
        self.tensors, self.averages = (
            {key: value.of_rank_zero() if self._alike(self.described[key].role) else value for key, value in of.items()}
            for of in (tensors, averages)
        )
        self.optimizer = optimizer.of_rank_zero() if self.promised.broadcasts_parameters else optimizer.copy()
        self.tracked = False
        self._zero_grad()

    # ----------------------------------------------------------------------------------------------------------- parts

    def _parameters(self) -> dict[str, Value]:
        return {name: value for name, value in self.tensors.items() if self.described[name].role != "buffer"}

    def _alike(self, role: str) -> bool:
        """Whether construction gives every rank what rank 0 has."""
        return self.promised.broadcasts_buffers if role == "buffer" else self.promised.broadcasts_parameters

    def _shards(self, samples: PerRank, branches: tuple[tuple[str, ...], ...]) -> Shards:
        longest = max(map(len, samples))
        index = np.array([(*rank, *(0,) * (longest - len(rank))) for rank in samples], np.int64)
        active = {
            name: np.array([float(bool(branches) and name in branches[rank]) for rank in self.everyone])
            for name in self.model.branches
        }
        inputs, targets = self.data
        together = self.promised.batch_norm == "synchronised"
        return Shards(inputs[index], targets[index], np.array([len(rank) for rank in samples]), active, together)

    def _using(self, name: str) -> tuple[str | None, ...]:
        """The branches of the layers that use a parameter; None for a layer that every forward passes."""
        layer = name.rpartition(".")[0]
        linear = [other for other in self.model.layers if isinstance(other, Linear)]
        return tuple(other.branch for other in linear if owner(other, self.model) == layer) or (None,)

    def _used(self, name: str, shards: Shards) -> Array:
        taken = [shards.counts > 0 if branch is None else shards.active[branch] > 0 for branch in self.users[name]]
        used: Array = np.logical_or.reduce(taken) & (shards.counts > 0)
        return used

    def _accumulate(self, gradient: _Gradient, local: Value) -> None:
        gradient.first = local.exact if gradient.first is None else gradient.first
        gradient.last = local.exact
        gradient.own = local.exact if gradient.own is None else gradient.own + local.exact
        so_far = gradient.pending
        gradient.pending = local if so_far is None else combine([(1, so_far), (1, local)], 1, self.model.dtype)

    def _synchronise(self, gradient: _Gradient, pending: Value, counts: Array) -> None:
        size = len(self.everyone)
        weights, divisor = None, float(self.divisor)
        if self.promised.uneven_batches == "weighted" and (counts != counts[0]).any():
            weights, divisor = counts.astype(np.float64), float(counts.sum())
        if self.promised.gradient == "sum":
            divisor /= self.divisor
        reduced = over_ranks(pending, weights, divisor, self.model.dtype)
        if gradient.synced is not None:
            # some reduce the whole gradient again: the part that was equal on all ranks goes through all roundings
            # once more
            reduced = combine([(1, gradient.synced), (1, reduced)], size + 3, self.model.dtype)
        gradient.synced, gradient.pending = reduced, None

    def _observed(self, what: str) -> dict[str, Entry]:
        if what == "gradients":
            none: tuple[Presence, ...] = tuple("none" for _ in self.everyone)
            zeros = {name: self.tensors[name].zeros() for name in self.frozen}
            frozen = {name: Entry(zero, self.model.dtype, none, self.everyone) for name, zero in zeros.items()}
            owned = {
                name: self.tensors[name].zeros().exact if gradient.own is None else gradient.own
                for name, gradient in self.gradients.items()
            }
            return {name: self._gradient(name, owned) for name in self.learned} | frozen
        there: tuple[Presence, ...] = tuple("there" for _ in self.everyone)
        made = {}
        for name, tensor in self.described.items():
            if (tensor.role == "buffer") == (what == "buffers"):
                moving = self.tracked and ".running_" in name
                ranks = (0,) if moving else self.everyone
                alike = self._alike(tensor.role) and not moving
                value, made_of = self.tensors[name], self.changed.get(name)
                if what == "averaged":
                    value, made_of = self.averages[name], None
                made[name] = Entry(value, tensor.dtype, there, ranks, alike, made_of)
        return made

    def _gradient(self, name: str, owned: dict[str, Array]) -> Entry:
        gradient = self.gradients[name]
        presence: list[Presence] = ["there" if used else "either" for used in gradient.used]
        if gradient.synced is not None:
            presence = ["there" for _ in self.everyone]
        elif self.backwards and not gradient.used.any():
            # zeros may be made where gradients are reduced
            zeros: Presence = "there" if self.reduced else "either"
            presence = ["none" if self.promised.unused_gradient == "none" else zeros for _ in self.everyone]
        made_of, inside = None, gradient.pending is not None
        weighted = self.promised.uneven_batches == "weighted"
        if gradient.own is not None and gradient.first is not None and gradient.last is not None:
            shared = self.latest if len(self.users[name]) > 1 and self.backwards == 1 else None
            shares = partial(shared.shares, name) if shared else None
            parts, before = (gradient.own, gradient.first, gradient.last), self.before.get(name)
            history = self.earlier.get(name)
            made_of = Contributions(
                *parts, before, self.backwards, self.counts, inside, weighted, owned, shares, history
            )
        elif name in self.shown:  # zero_grad came after
            zero = np.zeros_like(self.shown[name])
            made_of = Contributions(zero, zero, zero, self.shown[name], 0, self.counts, inside, weighted)
        return Entry(self._sum(name), self.model.dtype, tuple(presence), self.everyone, not inside, made_of)

    def _sum(self, name: str) -> Value:
        """Synchronised and local parts of a gradient together."""
        gradient = self.gradients[name]
        if gradient.synced is not None and gradient.pending is not None:
            return combine([(1, gradient.synced), (1, gradient.pending)], 1, self.model.dtype)
        return gradient.synced or gradient.pending or self.tensors[name].zeros()
