"""What a parameter would be if its last update, or the loading of its state, had gone wrong in a known way; and norms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ..diagnosis import Evidence
from ..job import Job, OptimizerSpec
from ..values import Array
from .clipping import Clip
from .history import History
from .moments import Alternatives, Origin
from .optimizer import Optimizer
from .other_adams import other_adams
from .rounding import Value
from .shards import shards_misplaced

NOT_UPDATED = "it was not updated: the step passed it over, or worked on a copy"


@dataclass(frozen=True, slots=True)
class Update:
    """One update of one parameter; arrays have the ranks as first axis.

    before: the parameter, and `optimizer` its state, in front of the update. gradient: what was to be applied. history: of
    the ranks' own gradients. clipped: how that was clipped.
    """

    name: str
    before: Array
    gradient: Array
    optimizer: Optimizer
    history: History
    clipped: Clip | None = None
    initial: Array | None = None

    def evidence(self, expected: Array, rank: int) -> Evidence:
        """Small differences are no sign of lost precision: what an update does wrong is small beside the parameter."""
        made = tuple((sentence, array[rank]) for sentence, array in self._alternatives(expected, rank))
        spec = self.optimizer.spec
        stateful = spec.name == "adam" or spec.momentum > 0
        first = stateful and self.name not in {*self.optimizer.state, *self.optimizer.steps}
        adds = spec.name == "sgd" and self.before[rank].ndim == 2
        idle = self._stepped(gradient=np.zeros_like(self.gradient))[rank] if adds else None
        return Evidence(
            len(self.before),
            alternatives=made,
            before=self.before[rank],
            idle=idle,
            precision=False,
            otherwise=_FIRST * first,
        )

    def _alternatives(self, expected: Array, rank: int) -> Iterator[tuple[str, Array]]:
        size, spec, before = len(self.before), self.optimizer.spec, self.before
        yield NOT_UPDATED, before
        for words, gradient in self.clipped.gone_wrong(self.name) if self.clipped else ():
            yield f"the gradient of its update was {words}", self._stepped(gradient=gradient)
        for words, gradient in self.history.windows_gone_wrong(self.name):
            yield f"the gradient of its update was {words}", self._stepped(gradient=gradient)
        if (whole := self.history.never_zeroed(self.name)) is not None:
            yield (
                "the gradient of its update holds all those before it, too: zero_grad leaves them",
                self._stepped(gradient=whole),
            )
        with np.errstate(over="ignore"):  # as narrow as a wire may be
            halved = self.gradient.astype(np.float16).astype(np.float64)
        yield "the gradient of its update was rounded as in float16", self._stepped(gradient=halved)
        if (stale := self.history.of_the_step_before(self.name)) is not None:
            yield (
                "the gradient of its update was that of the step before: stale, or a step late",
                self._stepped(gradient=stale),
            )
        if size > 1 and (own := self.history.own(self.name)) is not None:
            by_own = self._stepped(gradient=own)
            off = ~np.isclose(by_own[rank], expected)
            if not np.array_equal(by_own[rank][off], before[rank][off]):  # else it is as if it was not updated
                yield "it was updated by this rank's own gradient: not reduced", by_own
            largest = np.broadcast_to(own.max(axis=0), before.shape)
            yield (
                "the gradient of its update was the largest of all ranks', not their mean",
                self._stepped(gradient=largest),
            )
            averaged = "each rank steps by its own gradient, and parameters are averaged afterwards"
            yield averaged, np.broadcast_to(by_own.mean(axis=0), before.shape)
        if spec.name == "adam":
            yield from other_adams(self.name, self.optimizer, before, self.gradient)
        for factor, words, cause in _factors(size):
            by_gradient = self._stepped(gradient=self.gradient * factor)
            by_rate = before + (expected - before[rank]) * factor
            if np.allclose(by_gradient[rank], by_rate[rank]):
                both = f"its update is exactly {words}: the gradient was {cause}, or the learning rate was scaled"
                both += ", or it was updated twice" * (factor == 2)
                if spec.momentum and np.allclose(by_gradient[rank], self._ahead()[rank]):
                    both += "; or it is Nesterov's momentum"
                yield both, by_gradient
            yield f"the gradient of its update was exactly {words}: {cause}", by_gradient
            yield f"its update is exactly {words}: a scaled learning rate", by_rate
        yield "it was updated twice", self._stepped(times=2)
        if self.initial is not None:
            sentence = (
                "the step began at the new replica's initial value: what it updates, a master copy, was not loaded"
            )
            yield sentence, self._stepped(before=np.broadcast_to(self.initial, before.shape))
            for sentence, misplaced in shards_misplaced(self.name, self.optimizer):
                yield sentence, self._stepped(misplaced)
        if self.optimizer.state:
            yield "its optimizer state was lost: momentum began anew", self._stepped(Optimizer(spec, "float64"))
        if self.name not in {*self.optimizer.state, *self.optimizer.steps}:
            begun = self._like(spec)
            begun.step(self.name, Value(before), Value(np.zeros_like(before)))
            yield "its optimizer state is not new: a step with a gradient of zero came before", self._stepped(begun)
        elif spec.momentum:
            rounded = self._like(spec)
            rounded.state[self.name] = Value(rounded.state[self.name].exact.astype(np.float16).astype(np.float64))
            yield "its momentum is held in float16", self._stepped(rounded)
        for name, state in self.optimizer.state.items():
            if spec.momentum and name != self.name and state.exact.shape == before.shape:
                others = self._like(spec)
                others.state[self.name] = state
                yield f"it has the momentum of {name}", self._stepped(others)
        if spec.weight_decay:
            plain = replace(spec, weight_decay=0.0)
            yield "weight decay is missing", self._stepped(self._like(plain))
            for times, words in ((2, "twice"), (size, f"{size} times, once for each rank")):
                more = replace(spec, weight_decay=times * spec.weight_decay)
                yield f"weight decay counts {words}", self._stepped(self._like(more))
            decayed = before * (1 - spec.lr * spec.weight_decay)
            yield (
                "weight decay is decoupled: it does not go through the gradient",
                self._stepped(self._like(plain), decayed),
            )
        if spec.momentum:
            damped = self._stepped(
                gradient=self._decayed() * (1 - spec.momentum), optimizer=self._like(replace(spec, weight_decay=0.0))
            )
            yield "momentum is dampened: the gradient is multiplied by 1 - momentum", damped
            if self.optimizer.state:
                shared = self._like(spec)
                shared.state[self.name] = Value(self.gradient)
                yield (
                    "its momentum lies in the gradient's memory: the next backward overwrites it",
                    self._stepped(shared),
                )
            yield "it is Nesterov's momentum", self._ahead()
        with np.errstate(over="ignore"):  # what is too large for it would be infinite
            narrow = expected.astype(np.float16).astype(np.float64)
        yield "it is held in float16", np.broadcast_to(narrow, before.shape)
        significand, exponent = np.frexp(expected)
        short = np.ldexp(np.rint(significand * 2**8), exponent - 8)
        yield "it is held in bfloat16", np.broadcast_to(short, before.shape)

    def _ahead(self) -> Array:
        spec = self.optimizer.spec
        velocity = (self.before - self._stepped()) / spec.lr
        return np.asarray(self.before - spec.lr * (self._decayed() + spec.momentum * velocity))

    def _like(self, spec: OptimizerSpec) -> Optimizer:
        made = self.optimizer.copy()
        made.spec = spec
        return made

    def _decayed(self) -> Array:
        return self.gradient + self.optimizer.spec.weight_decay * self.before

    def _stepped(
        self,
        optimizer: Optimizer | None = None,
        before: Array | None = None,
        gradient: Array | None = None,
        times: int = 1,
    ) -> Array:
        """The parameter after the update, with something else than was promised."""
        used = (optimizer or self.optimizer).copy()
        parameter = Value(self.before if before is None else before)
        for _ in range(times):
            parameter = used.step(self.name, parameter, Value(self.gradient if gradient is None else gradient))
        return parameter.exact


_FIRST = (
    "it is the first update of a new replica: optimizer state of an earlier one may go into it (kept by a class, say)"
)


def _factors(size: int) -> list[tuple[float, str, str]]:
    """What a sum over ranks in place of a mean does, and the opposite."""
    if size == 1:
        return []
    large = f"{size} x too large at world size {size}", "summed, not averaged"
    small = f"{size} x too small at world size {size}", "divided by the world size once too often"
    return [(size, *large), (1 / size, *small)]


@dataclass(frozen=True, slots=True)
class Loading:
    """A parameter or buffer after load_state on a new replica. before: what the old one held last, on each rank. earlier:
    what happened to it before it was saved.
    """

    name: str
    job: Job
    before: Array
    earlier: Origin | None

    @property
    def initial(self) -> Array:
        """What rank 0's new replica held before."""
        return self.job.initial_of_resumed(0)[self.name].astype(np.float64)

    def evidence(self, expected: Array, rank: int) -> Evidence:
        known = [("it is what the old replica held last, not what was saved: the state is no copy", self.before[rank])]
        for other in dict.fromkeys((rank, 0)):
            sentence = f"it is rank {other}'s initial value of the new replica: load_state did not load it"
            known.append((sentence, self.job.initial_of_resumed(other)[self.name].astype(np.float64)))
        known += self.earlier.evidence(expected, rank).alternatives if self.earlier else ()
        begun = "it is rank 0's initial value of the old replica: the state holds what was there at construction"
        known.append((begun, self.job.initial(0)[self.name].astype(np.float64)))
        return Evidence(len(self.before), alternatives=tuple(known))


def norms_gone_wrong(history: History, names: Iterable[str], max_norm: float) -> Alternatives:
    """names: of the parameters of whose gradients the norm was taken."""
    own = {name: history.own(name) for name in names}
    flat = {name: gradient.reshape(len(gradient), -1) for name, gradient in own.items() if gradient is not None}
    if not flat:
        return ()
    each = np.concatenate([*flat.values()], axis=1)
    local = np.sqrt((each**2).sum(axis=1))
    mean = each.mean(axis=0)
    norm = np.sqrt((mean**2).sum())
    squares = {name: (gradient.mean(axis=0) ** 2).sum() for name, gradient in flat.items()}
    norms = np.sqrt([*squares.values()])
    size = len(local)
    told = [
        ("it is the largest element, but should be the root of the sum of squares", abs(mean).max(initial=0.0)),
        ("it is the sum of absolute values, but should be the root of the sum of squares", abs(mean).sum()),
        ("it is the sum of the parameters' norms, but should be the norm of all together", norms.sum()),
        ("the parameters' squared norms are squared once more before they are added up", np.sqrt((norms**4).sum())),
        *((f"the gradient of {name} counts twice", np.sqrt(norm**2 + square)) for name, square in squares.items()),
        *((f"the gradient of {name} is left out", np.sqrt(norm**2 - square)) for name, square in squares.items()),
    ]
    told += [
        (f"the gradients of {', '.join(left)} are left out", np.sqrt(norm**2 - sum(squares[name] for name in left)))
        for left in _of_layers(squares)
    ]
    if size > 1:
        summed = f"it is sqrt({size}) x too large: squares are summed over the ranks, which have equal gradients"
        summed += ", or every gradient counts twice, as those of tied layers may" * (size == 2)
        told.append((summed, np.sqrt(size) * norm))
    return (
        *((sentence, np.full_like(local, number)) for sentence, number in told),
        ("it is the norm of this rank's own gradients: taken before the reduction", local),
        ("it is the largest of the ranks' own norms", np.full_like(local, local.max())),
        ("it is the norm after clipping, but should be that before", np.full_like(local, min(norm, max_norm))),
        ("it is the norm before an earlier clip: measured once, and kept", np.full_like(local, norm)),
        ("it is the norm's square", np.full_like(local, norm**2)),
        (
            "it is the norm of one parameter only, but should be that of all gradients together",
            np.full_like(local, norms.max()),
        ),
    )


def _of_layers(names: Iterable[str]) -> Iterator[list[str]]:
    """The parameters of each layer that has several, and of every two of a few layers."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    yield from (several for several in layers.values() if len(several) > 1)
    if len(layers) <= _FEW_LAYERS:
        yield from (first + second for first, second in combinations(layers.values(), 2))


_FEW_LAYERS = 8
"""Of more, some two would explain a number by chance."""
